# cmake -DMODELS=a.json,b.json -DOUT=x.cc -P embed.cmake
#
# Writes the source of EmbeddedModels() (see embedded.h): the files as texts.
string(REPLACE "," ";" paths "${MODELS}")
set(source "#include \"tools/models/embedded.h\"

namespace tessera::tools {
namespace {

constexpr EmbeddedModel kModels[] = {
")
foreach(path IN LISTS paths)
  cmake_path(GET path STEM LAST_ONLY name)
  file(READ "${path}" json)
  string(APPEND source "    {\"${name}\", R\"json(${json})json\"},\n")
endforeach()
string(APPEND source "};

}  // namespace

absl::Span<const EmbeddedModel> EmbeddedModels() { return kModels; }

}  // namespace tessera::tools
")
file(WRITE "${OUT}" "${source}")
