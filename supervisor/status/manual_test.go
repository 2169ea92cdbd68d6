package status

import (
	"os"
	"strings"
	"testing"
)

// The manual has one row for each code, with the texts that status prints.
func TestManualListsCodes(t *testing.T) {
	b, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}

	rows := map[string][]string{}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "| SCA-") {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}

			if _, twice := rows[cells[0]]; twice {
				t.Errorf("%s has two rows", cells[0])
			}

			rows[cells[0]] = cells
		}
	}

	for _, k := range Kinds() {
		if strings.Contains(k.Title+k.Next, "%s") != (k.Subject != "") {
			t.Errorf("%s: Subject is %q", k.Code, k.Subject)
		}

		got := rows[string(k.Code)]
		delete(rows, string(k.Code))
		want := []string{string(k.Code), string(k.Severity), withSubject(k.Title, k.Subject), "", withSubject(k.Next, k.Subject)}
		if len(got) != len(want) {
			t.Errorf("%s: row %q, want five cells", k.Code, got)
			continue
		}

		for i := range want {
			if i == 3 && got[i] != "" { // the cause, for people
				continue
			}
			if got[i] != want[i] || i == 3 {
				t.Errorf("%s: the manual says %q, status says %q", k.Code, got[i], want[i])
			}
		}
	}

	for code := range rows {
		t.Errorf("docs/troubleshooting.md lists %s, which does not exist", code)
	}
}
