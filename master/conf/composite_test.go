package conf

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"saltern/master/internal/merge/options"
)

// TestPartsOfOptions (F1, F3): Load names the parts of options that the master ignores, with their
// lines, and no others.
func TestPartsOfOptions(t *testing.T) {
	for _, c := range []struct {
		name, text string
		notes      []string // line option: text
	}{
		{"sections", "external_auth:\n  pam:\n    bob: [test.*]\n    ^modle: x\n  sam: 5\n",
			[]string{"4 external_auth: pam > ^modle: not used by this master: it reads no settings",
				"5 external_auth: sam: expected a map, found a number"}},
		{"all of Salt's",
			"external_auth:\n  ours: {^model: {}, bob: [test.*]}\n  rest: {^url: 'https://h/x', bob: [test.*]}\n" +
				"  file: {^filename: /etc/x, ^filetype: text, ^hashtype: sha512, ^field_separator: ':', ^username_field: 1, ^password_field: 2, bob: [test.*]}\n", nil},
		{"nodegroups", "nodegroups:\n  a: 5\n  b: [x, or, y]\n  c: 'L@x,y'\n  d:\n    - 1\n",
			[]string{"2 nodegroups: group a: expected an expression", "5 nodegroups: group d: expected"}},
		{"reactor",
			"id: m\nreactor:\n  - 'a/b': /srv/x.sls\n  - 'c/d': [/srv/y.sls]\n    'e/f': [/srv/z.sls]\n  - text\n  - 'g': []\n  - 'h': [1]\n",
			[]string{"2 reactor: entry 2 is not a map of one tag", "2 reactor: entry 3 is not a map",
				"2 reactor: entry 4, tag g", "2 reactor: entry 5, tag h"}},
		{"peer", "peer:\n  '.*':\n    - test.ping\n  web1: test.ping\npeer_run:\n  x: {a: b}\n",
			[]string{"4 peer: web1: expected a list, found text: it grants nothing",
				"6 peer_run: x: expected a list, found a map"}},
		{"roots", "file_roots:\n  base: [/srv/salt]\n  dev: /srv/dev\npillar_roots: {base: 5}\n",
			[]string{"3 file_roots: dev: expected a list, found text",
				"4 pillar_roots: base: expected a list, found a number"}},
		{"remotes",
			"gitfs_remotes:\n  - https://h/plain.git\n  - https://u:geheim@h/x.git:\n    - root: salt\n    - pubkey: /k.pub\n    - saltenv:\n      - dev:\n        - ref: main\n        - rot: y\n    - mount: salt://x\n",
			[]string{"5 gitfs_remotes: https://u:(hidden)@h/x.git > pubkey: not used by this master: ssh needs",
				"9 gitfs_remotes: https://u:(hidden)@h/x.git > saltenv > dev > rot: nobody reads it; there are mountpoint, ref, root",
				"10 gitfs_remotes: https://u:(hidden)@h/x.git > mount: nobody reads it; there are all_saltenvs"}},
		{"pillars",
			"ext_pillar:\n  - git:\n    - master https://h/x.git:\n      - env: dev\n      - brnch: x\n  - file_tree:\n      root_dir: /srv/x\n      keep_newlines: True\n  - cmd_yaml: cat x\n  - own: {a: 1}\n",
			[]string{"5 ext_pillar: git > master https://h/x.git > brnch: nobody reads it",
				"8 ext_pillar: file_tree > keep_newlines: nobody reads it; there are debug"}},
		{"blacklist", "publisher_acl_blacklist:\n  users: [root]\n  functions: [cmd.*]\n",
			[]string{"3 publisher_acl_blacklist: functions: nobody reads it; there are modules, users"}},
		{"API",
			"rest_cherrypy:\n  port: 8000\n  disable_ssl: True\n  ssl_keys: x\n  host: [a]\n  collect_stats: True\n",
			[]string{"4 rest_cherrypy: ssl_keys: nobody reads it",
				"5 rest_cherrypy: host: expected text, found a list",
				"6 rest_cherrypy: collect_stats: not used by this master: statistics"}},
		{"engines",
			"engines:\n  - thorium\n  - webhook: {port: 5000, saltern_each_node: true, prot: 1}\n  - script: {cmd: x, saltern_each_node: everywhere}\n  - second: {engine_module: script, cmd: y}\n" +
				"  - own:\n    saltern_each_node: true\n  - 7\n  - slack: [x]\n  - quiet:\n",
			[]string{"1 engines: entry 5 does not run: ", "1 engines: entry 6 does not run: ",
				"1 engines: entry 7 does not run: ",
				"3 engines: webhook > prot: nobody reads it; there are address, ", "4 engines: script > saltern_each_node: expected true or false, found text: it runs on one master"}},
		{"engines as a map", "engines:\n  webhook: {port: 5000, saltern_each_node: true}\n  thorium:\n", nil},
		{"templates", "jinja_env:\n  trim_blocks: True\n  trim_block: True\n",
			[]string{"3 jinja_env: trim_block: nobody reads it"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := partNotes(t, c.text)
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

// partNotes loads a configuration and lists what is noted of keys inside of options.
func partNotes(t *testing.T, text string) []string {
	t.Helper()
	l := loader()
	m, err := l.Load(write(t, map[string]string{"master": text}))
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, n := range m.Notes {
		composite := builtinParts().keys[n.Option] != nil ||
			slices.Contains([]string{"nodegroups", "reactor"}, n.Option)
		whole := strings.HasPrefix(n.Text, "option is not used")
		if n.Level >= slog.LevelInfo && composite && !whole {
			got = append(got, fmt.Sprintf("%d %s: %s", n.Line, n.Option, n.Text))
		}
	}

	return got
}

// TestPartsTable: the table can be parsed, and all its options exist.
func TestPartsTable(t *testing.T) {
	root, err := readParts(partsText)
	if err != nil {
		t.Fatal(err)
	}

	for name := range root.keys {
		if _, known := builtin().options[name]; !known {
			t.Errorf("there is no option %s", name)
		}
	}

	for row, want := range map[string]string{
		"a > b\na > b": "twice", "a > b | word": `type "word"`, "a > b | | perhaps": `use "perhaps"`, "a > b | | warn": "no reason",
	} {
		if _, err := readParts(row); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", row, err, want)
		}
	}
}

// TestUnknownPartIsNamed: Load names any key beside those of the table, at any depth, with its
// line. No value of any form makes Load fail, or appears in a note.
func TestUnknownPartIsNamed(t *testing.T) {
	const odd = "nobody_knows_this"
	for path, keys := range unstarredMaps() {
		for _, value := range []string{"hunter2", "[hunter2]", "{hunter2: hunter2}", "[{a: [hunter2]}]", "", "5"} {
			text := "id: m\n" + nest(keys, odd, value)
			found := slices.ContainsFunc(partNotes(t, text), func(note string) bool {
				if strings.Contains(note, "hunter2") {
					t.Errorf("%s shows a value: %s", path, note)
				}
				line := strings.Count(text, "\n")
				return strings.HasPrefix(note, fmt.Sprintf("%d %s: ", line, keys[0])) &&
					strings.Contains(note, odd+": nobody reads it")
			})
			if !found {
				t.Errorf("%s, value %q: not named:\n%s\n%q", path, value, text, partNotes(t, text))
			}
		}
	}
}

// TestKeysOfReports: each key that an entry of saltern_merge_reports may have is in the table.
func TestKeysOfReports(t *testing.T) {
	text := "id: m\nsaltern_merge_reports: [{" + strings.Join(options.Keys(), ": x, ") + ": x}]\n"
	for _, note := range partNotes(t, text) {
		if strings.Contains(note, "nobody reads it") {
			t.Error(note)
		}
	}
}

// unstarredMaps lists the paths of those maps in used options in which administrators cannot choose
// the names of keys.
func unstarredMaps() map[string][]string {
	paths := map[string][]string{}
	var walk func(row *part, path []string)
	walk = func(row *part, path []string) {
		if len(row.keys) > 0 && row.keys[anyName] == nil {
			paths[strings.Join(path, " > ")] = path
		}
		for name, below := range row.keys {
			walk(below, append(slices.Clone(path), strings.ReplaceAll(name, anyName, "chosen")))
		}
	}

	for name, row := range builtinParts().keys {
		if !builtin().options[name].ignored() {
			walk(row, []string{name})
		}
	}

	return paths
}

// nest writes a key with its value below other keys, each on a line of its own. If an option is a
// list, the keys below it are in an element of that list.
func nest(above []string, key, value string) string {
	var b strings.Builder
	indent := ""
	for i, name := range append(slices.Clone(above), key) {
		dash := ""
		if i == 1 && slices.Equal(builtin().options[above[0]].types[:1], []string{"list"}) {
			dash = "- "
		}

		b.WriteString(indent + dash + name + ":")
		if name == key {
			b.WriteString(" " + value)
		}

		b.WriteString("\n")
		indent += strings.Repeat(" ", 2+len(dash))
	}

	return b.String()
}

// TestStartNamesPlaces: every message about an option at the start names file and line.
func TestStartNamesPlaces(t *testing.T) {
	l := loader()
	m, err := l.Load(write(t, map[string]string{"master": "id: m\nfile_roots:\n  base: /srv\n"}))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	m.Report(t.Context(), slog.New(slog.NewTextHandler(&out, nil)))
	if !strings.Contains(out.String(), "option=file_roots") || !strings.Contains(out.String(), "/master line=3") {
		t.Errorf("%s", out.String())
	}
}
