# Prints the tests that failed in the output of go test -v, each with its last
# 20 lines: the end of a long log is what is read first.
/^=== (RUN|CONT|NAME|PAUSE) / { test = $3; next }
/^ *--- FAIL: /               { failed[++n] = $3 }
/^(FAIL|panic: |fatal error: )|DATA RACE/ { other[++m] = $0 }
/^ *--- (PASS|SKIP|FAIL): /   { next }
test != ""                    { lines[test] = lines[test] $0 "\n" }
END {
	for (i = 1; i <= n; i++) {
		print "--- FAIL: " failed[i]
		k = split(lines[failed[i]], last, "\n")
		for (j = k > 21 ? k - 20 : 1; j < k; j++) print last[j]
	}
	for (i = 1; i <= m; i++) print other[i]
}
