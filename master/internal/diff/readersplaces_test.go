package diff

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"saltern/master/runner"
	"saltern/master/value"
)

// TestReadersCannotTell: that nobody gets a key is said only if no part of a pillar failed.
func TestReadersCannotTell(t *testing.T) {
	t.Parallel()
	const top = "base: {'*': [web]}\n"
	for name, tt := range map[string]struct {
		files map[string]string
		code  int
		want  string
	}{
		"whole":            {map[string]string{"top.sls": top, "web.sls": "port: 1\n"}, codeNobody, ""},
		"no such file":     {map[string]string{"top.sls": top}, codeUntold, "of 2 minions have faults"},
		"a faulty top.sls": {map[string]string{"top.sls": "{{ x.y.z }}\n" + top}, codeUntold, "of 2 minions have faults"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(tt.files["top.sls"], "{{") {
				python(t)
			}
			s, _ := newService(t, tt.files, manyMinions(2), nil)
			report := readers(t, s, "key", "nosuch")
			if text := report.Text(false); report.Code() != tt.code || !strings.Contains(text, tt.want) {
				t.Errorf("code %d, want %d\n%s", report.Code(), tt.code, text)
			}
			if faulty := report.Data().Value("faulty"); faulty != int64(strings.Count(tt.want, "of 2")*2) {
				t.Errorf("%v minions are faulty", faulty)
			}
		})
	}
}

// TestReadersInLists: a key may go through lists, by an index or by a key of the maps in them, as that of
// pillar.get.
func TestReadersInLists(t *testing.T) {
	t.Parallel()
	s, _ := newService(t, map[string]string{
		"top.sls": "base: {'*': [a, b], m0001: [c]}\n",
		"a.sls":   "password: 1\nusers:\n  - name: x\n    password: M4RK\n  - [{password: M4RK}]\n  - plain\n",
		"b.sls":   "other:\n  - password: M4RK\n",
		"c.sls":   "other:\n  - name: M4RK\n",
	}, manyMinions(2), nil)

	for key, want := range map[string][]string{
		"users:0:password":  {"users:0:password a:4 2"},
		"users:-3:password": {"users:0:password a:4 2"},
		"users:password":    {"users:0:password a:4 2"},
		"users:*:password":  {"users:0:password a:4 2", "users:1:0:password a:5 2"},
		"users:1":           {"users:1 a:5 2"},
		"users:3":           nil,
		"users:p*":          {"users:0:password a:4 2"},
		"other:password":    {"other:0:password b:2 1"},
		"other:0:*":         {"other:0:name b:0 c:2 1", "other:0:password b:2 1"},
	} {
		report := readers(t, s, "key", key)
		var got []string
		for _, g := range report.Groups {
			line := g.Key
			for i, s := range g.Sources {
				line += fmt.Sprintf(" %s:%d", s.Name, g.origins[i].line)
			}
			got = append(got, fmt.Sprint(line, " ", g.count))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
		if text := report.Text(false); strings.Contains(text, "M4RK") {
			t.Errorf("%s: it has a value: %s", key, text)
		}
	}
}

// TestReadersOfAKeyOfAFile: with file=, a key counts only for minions that get its value from the file.
func TestReadersOfAKeyOfAFile(t *testing.T) {
	t.Parallel()
	s, _ := newService(t, map[string]string{
		"top.sls":     "base:\n  '*': [common]\n  m0001: [special]\n",
		"common.sls":  "password: 1\n",
		"special.sls": "password: 2\n",
	}, manyMinions(2), nil)

	for file, want := range map[string]string{"common": "m0000", "special": "m0001"} {
		report := readers(t, s, "key", "password", "file", file)
		if report.Readers != 1 || len(report.Groups) != 1 || !slices.Equal(report.Groups[0].minions, []string{want}) {
			t.Errorf("%s: want %s only\n%s", file, want, report.Text(false))
		}
	}
}

// TestPatternsOfPillars: a target cannot tell the values that an answer hides.
func TestPatternsOfPillars(t *testing.T) {
	t.Parallel()
	s, root := newService(t, served, manyMinions(2), nil)
	table := runner.New()
	AddRunners(table, s)
	for _, tt := range []struct {
		tgt     any
		typ     string
		refused bool
	}{
		{"db_password:a*", "pillar", true},
		{"db_password:a", "pillar", false},
		{"db_password:a*", "pillar_exact", true},
		{"db_password:a", "pillar_pcre", true},
		{"m* and I@db_password:a*", "compound", true},
		{[]any{"m*", "and", "not", "J@db_password:^a"}, "compound", true},
		{"N@ours or I@db_password:[a-m]*", "compound", true},
		{"N@ours", "compound", false},
		{"ours", "nodegroup", false},
		{"*", "glob", false},
	} {
		for name, args := range map[string][]any{
			pillarReaders: {"key", "x"},
			pillarDiff:    {"folder", root + "/served"},
		} {
			named := value.NewMap(append(args, "tgt", tt.tgt, "tgt_type", tt.typ)...)
			_, err := table.Call(t.Context(), &runner.Env{}, name, nil, named)
			if isRefused := err != nil && strings.Contains(err.Error(), "can be guessed"); isRefused != tt.refused || err != nil && !isRefused {
				t.Errorf("%s of %v (%s): %v", name, tt.tgt, tt.typ, err)
			}
		}
	}
}
