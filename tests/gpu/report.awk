# Makes gpu.md and gpu.json of what run.sh left in a folder: awk -v folder=FOLDER -f report.awk
#
# rows.jsonl has a row of a bench a line, an object of texts and numbers; tests.tsv has name, result and seconds of
# each test, machine.txt what the machine is. A bare machine with a GPU has awk, and may have no Python.

function text(row, key) {
    if (!match(row, "\"" key "\": *\"([^\"\\\\]|\\\\.)*\""))
        return ""
    row = substr(row, RSTART, RLENGTH - 1)
    sub("^\"" key "\": *\"", "", row)
    return row
}

function number(row, key) {
    if (!match(row, "\"" key "\": *-?[0-9][0-9.eE+-]*"))
        return ""
    row = substr(row, RSTART, RLENGTH)
    sub("^\"" key "\": *", "", row)
    return row
}

function quoted(words) {
    gsub(/[\\\t]/, " ", words)
    gsub(/"/, "\\\"", words)
    return "\"" words "\""
}

# Lines of a file that have something; *into[1], ... Returns how many.
function read(name, into,   count, line) {
    while ((getline line < (folder "/" name)) > 0) {
        gsub(/\\u00d7/, "×", line) # as Python writes it
        if (line ~ /[^ \t]/)
            into[++count] = line
    }
    close(folder "/" name)
    return count + 0
}

function list(items, count,   i) {
    for (i = 1; i <= count; i++)
        printf "%s\n  %s", (i > 1 ? "," : ""), items[i] > json
}

function add(case_, value, unit, more) {
    rows[++num_rows] = "{\"bench\": \"gpu\", \"case\": \"" case_ "\", \"value\": " value ", \"unit\": \"" unit "\"" more "}"
}

# PyTorch's rows have no ratio of their own: the GPU's of the same case is put beside them.
function put_beside(row,   at, name, mine) {
    at = index(text(row, "case"), " in PyTorch")
    name = substr(text(row, "case"), 1, at - 1)
    mine = at ? ours[name, text(row, "unit")] : ""
    if (mine)
        add(name ": fedge", mine, text(row, "unit"),
            ", \"peer\": \"PyTorch on the same GPU" substr(text(row, "case"), at + length(" in PyTorch")) \
            "\", \"peer_value\": " number(row, "value") \
            sprintf(", \"ratio\": %.4g", mine / number(row, "value")))
}

# Of a peak that the same run has measured, for rows that say what a sample takes.
function add_share(row, peak, key, scale, of) {
    if (number(row, key) != "" && peak)
        add(text(row, "case") ": share of " of,
            sprintf("%.4g", 100 * number(row, "value") * number(row, key) / (peak * scale)), "%", "")
}

BEGIN {
    json = folder "/gpu.json"
    table = folder "/gpu.md"
    num_machine = read("machine.txt", machine)
    num_tests = read("tests.tsv", tests)
    num_read = read("rows.jsonl", all)
    for (i = 1; i <= num_read; i++) {
        if (all[i] !~ /^[{].*[}]$/ || number(all[i], "value") == "") # of a bench that was ended
            continue
        rows[++num_rows] = all[i]
        name = text(all[i], "case")
        ours[name, text(all[i], "unit")] = number(all[i], "value")
        sub(/, GPU.*/, "", name)
        measured[name] = number(all[i], "value")
    }
    num_read = num_rows + 0
    for (i = 1; i <= num_read; i++)
        put_beside(rows[i])
    for (i = 1; i <= num_read; i++) {
        add_share(rows[i], measured["matrix peak, fp32"], "flops", 1, "the matrix peak, fp32")
        add_share(rows[i], measured["memory, read only"], "bytes", 1e9,
                  "the bandwidth of memory, by parameters alone")
    }

    printf "" > table
    for (i = 1; i <= num_machine; i++) {
        print machine[i] > table
        machine[i] = quoted(machine[i])
    }
    print "\n| test | result | seconds |\n| --- | --- | --- |" > table
    for (i = 1; i <= num_tests; i++) {
        split(tests[i], part, "\t")
        print "| " part[1] " | " part[2] " | " part[3] " |" > table
        tests[i] = "{\"name\": " quoted(part[1]) ", \"result\": " quoted(part[2]) ", \"seconds\": " quoted(part[3]) "}"
    }
    print "\n| case | value | beside | ratio |\n| --- | --- | --- | --- |" > table
    for (i = 1; i <= num_rows; i++) {
        unit = text(rows[i], "unit")
        peer = text(rows[i], "peer")
        if (peer != "")
            peer = sprintf("%s: %.4g %s", peer, number(rows[i], "peer_value"), unit)
        printf "| %s | %.4g %s | %s | %s |\n", text(rows[i], "case"), number(rows[i], "value"), unit, peer,
            number(rows[i], "ratio") > table
    }

    printf "{\n \"machine\": [" > json
    list(machine, num_machine)
    printf "],\n \"tests\": [" > json
    list(tests, num_tests)
    printf "],\n \"rows\": [" > json
    list(rows, num_rows)
    print "]\n}" > json
}
