# Writes OUTPUT: every kernel file of FILES (names relative to SOURCE, sorted) as a byte array.
# Run as `cmake -DSOURCE=... -DFILES=a,b -DOUTPUT=... -P embed.cmake`. A script and not a C program, so that a
# cross build needs no second compiler.
string(REPLACE "," ";" names "${FILES}")
set(arrays "")
set(table "")
set(index 0)
foreach(name IN LISTS names)
    file(READ "${SOURCE}/${name}" hex HEX)
    string(REGEX REPLACE "(................................)" "\\1\n    " hex "${hex}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
    string(APPEND arrays
        "static const unsigned char file${index}[] = { /* ${name} */\n    ${bytes}0x00};\n\n")
    string(APPEND table "    {\"${name}\", (const char *)file${index}, sizeof(file${index}) - 1},\n")
    math(EXPR index "${index} + 1")
endforeach()
file(WRITE "${OUTPUT}" "#include \"daemon/jit/sources.h\"

${arrays}const struct source_file sources_embedded[] = {
${table}};
const size_t sources_embedded_count = ${index};
")
