package extpillar

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestSplitWords(t *testing.T) {
	for line, want := range map[string][]string{
		"":                     nil,
		" a  b\tc\n":           {"a", "b", "c"},
		`a "b c" 'd e'f`:       {"a", "b c", "d ef"},
		`'' ""`:                {"", ""},
		`a\ b \"c "d\"e" 'f\'`: {"a b", `"c`, `d"e`, `f\`},
		`"a\b" # $x`:           {`a\b`, "#", "$x"},
		"a\vb\u00a0c":          {"a\vb\u00a0c"},
	} {
		if got, ok := splitWords(line); !ok || !slices.Equal(got, want) {
			t.Errorf("%q: %q %v, want %q", line, got, ok, want)
		}
	}
	for _, line := range []string{`"a`, `'a`, `a\`, `"a\`} {
		if got, ok := splitWords(line); ok {
			t.Errorf("%q: %q, want an error", line, got)
		}
	}
}

// TestSplitWordsAsPythonDoes compares with Python's shlex.
func TestSplitWordsAsPythonDoes(t *testing.T) {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python to compare with it")
	}

	var lines []string
	for range 20000 {
		var line strings.Builder
		for range rand.IntN(12) {
			line.WriteString([]string{"a", "b", " ", "\t", "\n", `"`, `'`, `\`, "#", "$", "ü", "\v", "\r", ";"}[rand.IntN(14)])
		}
		lines = append(lines, line.String())
	}
	in, err := json.Marshal(lines)
	if err != nil {
		t.Fatal(err)
	}

	const program = `
import json, shlex, sys
def split(line):
    try:
        return shlex.split(line)
    except ValueError:
        return None
json.dump([split(line) for line in json.load(sys.stdin)], sys.stdout)
`
	cmd := exec.Command(python, "-c", program)
	cmd.Stdin = strings.NewReader(string(in))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want [][]string
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	for i, line := range lines {
		got, ok := splitWords(line)
		if ok != (want[i] != nil) || !slices.Equal(got, want[i]) {
			t.Errorf("%q: %q %v, want %q", line, got, ok, want[i])
		}
	}
}
