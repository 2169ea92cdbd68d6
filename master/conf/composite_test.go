package conf

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestPartsOfOptions (F1): what is not obeyed inside of an option is named with its line;
// every setting that Salt 3008.3 documents is not.
func TestPartsOfOptions(t *testing.T) {
	for _, c := range []struct {
		name, text string
		notes      []string // line: text
	}{
		{"sections", "external_auth:\n  pam:\n    bob: [test.*]\n    ^modle: x\n  sam: 5\n",
			[]string{"4: pam: nobody reads ^modle: it reads no settings", "5: sam: expected users"}},
		{"all of Salt's", "external_auth:\n  ours: {^model: {}, bob: [test.*]}\n  rest: {^url: 'https://h/x', bob: [test.*]}\n" +
			"  file: {^filename: /etc/x, ^filetype: text, ^hashtype: sha512, ^field_separator: ':', ^username_field: 1, ^password_field: 2, bob: [test.*]}\n", nil},
		{"nodegroups", "nodegroups:\n  a: 5\n  b: [x, or, y]\n  c: 'L@x,y'\n  d:\n    - 1\n",
			[]string{"2: group a: expected an expression", "5: group d: expected"}},
		{"reactor", "id: m\nreactor:\n  - 'a/b': /srv/x.sls\n  - 'c/d': [/srv/y.sls]\n    'e/f': [/srv/z.sls]\n  - text\n  - 'g': []\n  - 'h': [1]\n",
			[]string{"2: entry 2 is not a map of one tag", "2: entry 3 is not a map", "2: entry 4, tag g", "2: entry 5, tag h"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := loader()
			m, err := l.Load(write(t, map[string]string{"master": c.text}))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, n := range m.Notes {
				if n.Level == slog.LevelWarn && (n.Option == "external_auth" || n.Option == "nodegroups" || n.Option == "reactor") {
					got = append(got, fmt.Sprintf("%d: %s", n.Line, n.Text))
				}
			}
			if len(got) != len(c.notes) {
				t.Fatalf("%q", got)
			}
			for i, want := range c.notes {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("%q, not %q", got[i], want)
				}
			}
		})
	}
}
