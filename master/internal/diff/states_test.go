package diff

import (
	"fmt"
	"strings"
	"testing"

	"saltern/master/internal/pillar"
	"saltern/master/value"
	"saltern/test/check"
)

var states = map[string]string{
	"top.sls":         "base:\n  '*': [common]\n  'I@tier:front': [web]\n",
	"common.sls":      "vim:\n  pkg.installed\n/etc/motd:\n  file.managed:\n    - contents: hello\n    - mode: 644\n",
	"web/init.sls":    "{% from 'web/map.jinja' import port with context %}\ninclude: [.files]\nnginx:\n  service.running:\n    - enable: true\n    - port: {{ port }}\n    - password: {{ salt['pillar.get']('db:password') }}\n",
	"web/files.sls":   "/etc/nginx/nginx.conf:\n  file.managed:\n    - source: salt://web/nginx.conf\n",
	"web/map.jinja":   "{% set port = salt['pillar.get']('port', 80) + 1 %}\n",
	"unused/init.sls": "x: {test.nop: []}\n",
}

// TestStates: what minions would get of states, by targets of the pillar and of grains, with values
// of the pillar in it.
func TestStates(t *testing.T) {
	t.Parallel()
	python(t)
	s, root := newService(t, map[string]string{
		"top.sls": "base:\n  '*': [all]\n",
		"all.sls": "{% if grains.os == 'Debian' %}\ntier: front\n{% endif %}\nport: 8080\ndb: {password: M4RK-1}\n",
	}, manyMinions(4), nil)
	write(t, root+"/states", states)
	s.cfg.States = StateFiles{Roots: map[string][]string{"base": {root + "/states"}}}

	compare := func(files map[string]string) *Report {
		t.Helper()
		dir := write(t, t.TempDir(), files)
		s.cfg.Folders = []string{dir}
		r, err := requestOf(topDiff, nil, value.NewMap("folder", dir))
		check.Must(t, err)
		report, err := s.Compare(t.Context(), r, func(string) {})
		check.Must(t, err)
		return report
	}

	if report := compare(states); report.Code() != codeSame {
		t.Errorf("the same states: %s", report.Text(false))
	}

	report := compare(with(states,
		"common.sls", strings.ReplaceAll(states["common.sls"], "644", "600"),
		"web/map.jinja", "{% set port = salt['pillar.get']('port', 80) + 2 %}\n",
		"web/files.sls", "/etc/nginx/nginx.conf:\n  file.absent\n",
		"web/leak.sls", "leak:\n  test.show:\n    - backwards: {{ salt['pillar.get']('db:password') | reverse }}\n",
		"rpm.sls", "rpm:\n  cmd.run:\n    - name: {{ salt['cmd.run']('id') }}\n",
		"top.sls", states["top.sls"]+"  'os:Debian': [{match: grain}, web.leak]\n  'os:RedHat':\n    - match: grain\n    - rpm\n"))
	_, text, _ := strings.Cut(report.Text(false), "\n\n")
	want := `2 minions: m0000, m0002
  + SLS web.leak
  ~ /etc/motd:file.managed:mode: 644 → 600
  - /etc/nginx/nginx.conf:file.managed: {"source": "salt://web/nginx.conf"}
  + /etc/nginx/nginx.conf:file.absent: {}
  ~ nginx:service.running:port: 8081 → 8082
  + leak: {"test.show": {"backwards": ")neddih("}}

2 minions: m0001, m0003
  + SLS rpm
  ~ /etc/motd:file.managed:mode: 644 → 600

Cannot be told (left out on both sides):
  rpm calls cmd.run; its text differs, or what it imports; 2 minions, such as m0001
`
	if text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

// TestImportsOfRefusedFiles: an SLS that cannot be told counts as the same only if what it imports is
// the same, too.
func TestImportsOfRefusedFiles(t *testing.T) {
	t.Parallel()
	python(t)
	tree := map[string]string{
		"top.sls":       "base: {'*': [a.b, c]}\n",
		"a/b.sls":       "{% from 'a/map.jinja' import x with context %}\n{%- import_yaml \"./near.yaml\" as n %}\nb: {{ salt['cmd.run']('id') }}\n",
		"a/map.jinja":   "{% include 'deep.jinja' %}{% set x = 1 %}\n",
		"deep.jinja":    "",
		"a/near.yaml":   "n: 1\n",
		"c.sls":         "#!py\ndef run():\n    return {}\n",
		"unrelated.sls": "x: 1\n",
	}
	for _, tt := range []struct {
		file string
		code int
	}{
		{"unrelated.sls", codeSame}, {"a/map.jinja", codeDiffers}, {"deep.jinja", codeDiffers},
		{"a/near.yaml", codeDiffers}, {"a/b.sls", codeDiffers}, {"c.sls", codeDiffers},
	} {
		s, root := newService(t, tree, manyMinions(1), nil)
		report := compareFolder(t, s, root, with(tree, tt.file, tree[tt.file]+"# changed\n"))
		if report.Code() != tt.code || len(report.Refused) != 2 {
			t.Errorf("%s: code %d\n%s", tt.file, report.Code(), report.Text(false))
		}
	}
}

// TestTopFilesOfStates: which SLS count by the three strategies (salt/state.py merge_tops).
func TestTopFilesOfStates(t *testing.T) {
	t.Parallel()
	root := write(t, t.TempDir(), map[string]string{
		"base/top.sls": "base: {'*': [a]}\ndev: {'*': [b]}\n",
		"dev/top.sls":  "base: {'*': [c]}\ndev: {'*': [d], 'm*': [e]}\nqa: {'*': [f]}\n",
		"qa/top.sls":   "qa: {'*': [g]}\n",
		"old/x.sls":    "",
	})
	envs := []string{"base", "dev", "qa", "old"}
	roots := map[string][]string{}
	for _, env := range envs {
		roots[env] = []string{root + "/" + env}
	}
	for merging, want := range map[string]string{
		"":          "base/a dev/b qa/g",
		"merge":     "base/a dev/b qa/g",
		"same":      "base/a dev/d dev/e qa/g",
		"merge_all": "base/a base/c dev/b dev/d dev/e qa/f qa/g",
	} {
		t.Run(merging, func(t *testing.T) {
			c := pillar.New(pillar.Config{
				Roots:     roots,
				RootOrder: envs,
				Compare:   &pillar.Compare{Confined: true, States: &pillar.States{Merging: merging}},
			})
			out, err := c.Outcome(t.Context(), pillar.Request{ID: "m1", Grains: value.NewMap()}, nil, nil)
			check.Must(t, err)
			var got []string
			for _, k := range out.Selected {
				got = append(got, k.Env+"/"+k.SLS)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("got %q, want %q", strings.Join(got, " "), want)
			}
		})
	}
}

// TestPillarsOfStates: a pillar that cannot be told on one side is left out on both for states too, and is
// named.
func TestPillarsOfStates(t *testing.T) {
	t.Parallel()
	python(t)
	s, root := newService(t, map[string]string{
		"top.sls": "base: {'*': [web, port]}\n",
		"web.sls": "tier: front\n# {{ salt['cmd.run']('id') }}\n",
	}, manyMinions(1), nil)
	write(t, root+"/states", states)
	s.cfg.States = StateFiles{Roots: map[string][]string{"base": {root + "/states"}}}
	r, err := requestOf(topDiff, nil, value.NewMap("folder", root+"/states"))
	check.Must(t, err)
	report, err := s.Compare(t.Context(), r, func(string) {})
	check.Must(t, err)
	if text := report.Text(false); report.Code() != codeSame || !strings.Contains(text, "pillar: web calls cmd.run") {
		t.Errorf("got %s", text)
	}
}

// TestManySelectedFiles: the names of SLS in groups are bounded as changes are.
func TestManySelectedFiles(t *testing.T) {
	t.Parallel()
	top := "base: {'*': ["
	for i := range 3 * maxChanges {
		top += fmt.Sprintf("s%d, ", i)
	}
	s, root := newService(t, served, manyMinions(1), nil)
	report := compareFolder(t, s, root, map[string]string{"top.sls": top + "]}\n"})
	if lines := strings.Count(report.Text(false), "\n"); lines > maxChanges+30 || !strings.Contains(report.Text(false), "and 1000 more changes") {
		t.Errorf("%d lines: %.300s", lines, report.Text(false))
	}
}
