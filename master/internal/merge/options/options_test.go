package options

import (
	"fmt"
	"strings"
	"testing"

	"saltern/master/saltyaml"
	"saltern/test/check"
)

// read reads an option with one entry, which is written in the flow style.
func read(t *testing.T, trusted bool, entries ...string) ([]Report, []error) {
	t.Helper()
	v, err := saltyaml.Decode([]byte("["+strings.Join(entries, ",")+"]"), "x")
	check.Must(t, err)
	return Parse(v.([]any), trusted)
}

const whole = "remote: pillar, form: gitea, url: 'https://git.example.com', project: ops/pillar, token: T0K3N"

func TestParse(t *testing.T) {
	all, faults := read(t, false, "{"+whole+", branches: ['f/*', '!f/x*'], comment: changes}")
	if len(all) != 1 || len(faults) != 0 {
		t.Fatal(all, faults)
	}
	r := all[0]
	for branch, want := range map[string]bool{"f/a": true, "f/x1": false, "main": false} {
		if r.Covers(branch) != want {
			t.Errorf("%s is covered: %v", branch, !want)
		}
	}
	if r.Context != "saltern" || r.Comment != Changes || r.Fails || r.Forks {
		t.Errorf("got %+v", r)
	}
	if shown := fmt.Sprintf("%+v %v", r, r); strings.Contains(shown, "T0K3N") {
		t.Errorf("the token is shown: %s", shown)
	}
}

func TestBadEntries(t *testing.T) {
	with := func(old, new string) string { return "{" + strings.Replace(whole, old, new, 1) + "}" }
	for want, entry := range map[string]string{
		"remote: it has":            with("remote: pillar", "x: y"),
		"console: it has a user":    with("form", "console: 'https://u:S3CR3T@salt.example.com', form"),
		"remote: it is no URL":      with("remote: pillar", "remote: 'https://a:S3CR3T%@git.example.com/x'"),
		"may be a token":            with("remote: pillar", "remote: 'https://S3CR3T@git.example.com/x'"),
		"diferences: there is no":   with("form", "diferences: failure, form"),
		"differences, without_grai": with("form", `"x\u202e\n": 3, form`),
		"it has a password":         with("remote: pillar", "remote: 'https://a:S3CR3T@git.example.com/x'"),
		"form: there are":           with("gitea", "svn"),
		"url: it is no URL":         with("https://git.example.com", "file:///etc/passwd"),
		"sent in clear":             with("https:", "http:"),
		"user or password":          with("https://", "https://a:S3CR3T@"),
		"owner/name":                with("ops/pillar", "ops/../../x"),
		"project: it has":           with("ops/pillar", "'a/b?x'"),
		"without a token":           with("token: T0K3N", "x: y"),
		"it has to be a whole path": with("token: T0K3N", "token_file: x"),
		"token_file is set":         with("token: T0K3N", "token: a, token_file: /b"),
		"saltern_diff_trusted":      with("form", "forks: true, form"),
		"True or False":             with("form", "forks: 3, form"),
		"no merge requests":         with("gitea", "generic, comment: numbers"),
		"comment: there are":        with("form", "comment: all, form"),
		"1 to 50":                   with("form", "branches: [], form"),
		"it is not a map":           "3",
		"text of one line":          with("remote: pillar", `remote: "a\nb"`),
	} {
		all, faults := read(t, true, entry)
		if len(all) != 0 || len(faults) != 1 || !strings.Contains(faults[0].Error(), want) {
			t.Errorf("%s: %v", entry, faults)
		}
		if strings.Contains(fmt.Sprint(faults), "T0K3N") || strings.Contains(fmt.Sprint(faults), "S3CR3T") {
			t.Errorf("%s: a secret is in the error", entry)
		}
	}

	if all, faults := read(t, false, "{"+whole+"}", "{"+whole+"}", "{"+whole+", context: second}"); len(all) != 2 || len(faults) != 1 {
		t.Errorf("entries for one status: %v", faults)
	}
	if all, faults := read(t, false, strings.Split(strings.Repeat("3;", maxReports+5)+"3", ";")...); len(all) != 0 || len(faults) != maxReports+1 {
		t.Errorf("many entries: %v", faults)
	}
}
