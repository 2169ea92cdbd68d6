package pillar

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"saltern/master/internal/pillar/extpillar"
	"saltern/master/value"
)

// extTrees makes random ext_pillar chains, and what they read.
type extTrees struct {
	*rand.Rand
	t      *testing.T
	root   string
	groups map[string]any
}

func (r extTrees) one(texts ...string) string { return texts[r.IntN(len(texts))] }

func (r extTrees) chance(oneIn int) bool { return r.IntN(oneIn) == 0 }

// extGroups are nodegroups of all forms.
var extGroups = map[string]any{
	"a-all":   "*",
	"b-os":    "G@os:Debian and web*",
	"c-none":  "L@db1,db2",
	"d-list":  []any{"L@web1,db1", "or", "G@role:x"},
	"e-not":   "not G@os:Debian",
	"f-outer": "N@b-os or N@c-none",
	"g-names": []any{"web1", "or", "db1"},
	"h-regex": `E@w.b\d`,
	"i-net":   "S@10.0.0.0/8",
	"j-paren": "( web1 or db* ) and not ( L@web2 )",
	"l-bad":   "web1 and or",
	"m-P":     "P@os:(Debian|RedHat)",
	"n-inner": "N@g-names",
}

// groupsForPython are nodegroups that Go leaves to Salt.
var groupsForPython = map[string]any{"x-bad": "web1 and or", "y-pillar": "I@none:such", "z-two": "web1 db1", "k-comma": "web1,db1", "g-list": []any{"web1", "db1"}, "r-plain": "N@g-list"}

// name returns the name of a file or directory.
func (r extTrees) name() string {
	return r.one("a", "b", "file.txt", "x.y.z", "with space", "ümlaut", "-dash", "UP", ".hidden", "[x]", "1", "true", "a\nb",
		"conf.d", "id_rsa", "cert.pem")
}

func (r extTrees) content() string {
	return r.one("", "\n", "\n\n", "text", "text\n", "two\nlines\n", "\r\n", "\x00\x01\xff\n", "ümlaut\n", "{{ grains.id }}\n",
		strings.Repeat("long line ", 500)+"\n", "a: 1\n")
}

// fill writes a random tree of files into a directory.
func (r extTrees) fill(dir string, depth int) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	for range r.IntN(5) {
		full := filepath.Join(dir, r.name())
		if _, err := os.Lstat(full); err == nil {
			continue // to open a FIFO would wait
		}
		switch r.IntN(12) {
		case 0, 1, 2, 3:
			if depth > 0 {
				r.fill(full, depth-1)
			}
		case 4:
			_ = os.Symlink(r.one("..", ".", "a", "../b", "nowhere", "/etc/hostname", "../../nodegroups/a-all", "file.txt"), full)
		case 5:
			_ = syscall.Mkfifo(full, 0o600)
		case 6:
			_ = os.Symlink(filepath.Join(r.root, "shared"), full)
		default:
			_ = os.WriteFile(full, []byte(r.content()), 0o644)
		}
	}
}

// fileTree writes a tree and returns the entry that reads it.
func (r extTrees) fileTree(n int) any {
	root := filepath.Join(r.root, fmt.Sprint("tree", n))
	if !r.chance(20) {
		r.fill(root, 0)
		if !r.chance(5) {
			r.fill(root+"/hosts/web1", 3)
		} else if r.chance(2) {
			_ = os.MkdirAll(root+"/hosts", 0o755)
			_ = os.WriteFile(root+"/hosts/web1", nil, 0o644)
		}
		for _, group := range slices.Sorted(maps.Keys(r.groups)) {
			if r.chance(4) {
				r.fill(root+"/nodegroups/"+group, 2)
			}
		}
		if r.chance(4) {
			r.fill(root+"/nodegroups/unknown", 1)
		}
	}

	args := map[string]any{"root_dir": root}
	if r.chance(6) {
		return []any{any(root), any([]any{root})}[r.IntN(2)]
	}
	if r.chance(2) {
		args["keep_newline"] = []any{true, false, []any{"a", "*.txt"}, []any{"*"}, []any{}, []any{"./*", "*/x.y.z", "[!a]*"}, []any{1, "*"}, "yes"}[r.IntN(8)]
	}
	if r.chance(4) {
		args["debug"] = r.chance(2)
	}
	// A loop of links that branches has more places than there are atoms, in Salt, too.
	if r.chance(8) {
		args["template"] = []any{true, false, 1}[r.IntN(3)]
		args["render_default"] = "jinja"
	}
	if r.chance(20) {
		args[r.one("raw_data", "nosuch")] = true
	}
	return args
}

// yamlText returns an output of cmd_yaml.
func (r extTrees) yamlText() string {
	values := []string{"1", "text", "[1, 2, {x: y}]", "{x: 1, y: {z: 2}}", "0644", "on", "~", "1.5", "'quoted'", `"esc \n \u00e4"`,
		"|\n  block\n  text", ">\n  folded\n  text", "web1", "\n  - 1\n  - two", "", "# comment", "1:30", "0x1F", "1_000", "ümlaut"}
	end := r.one("", "", "", "\n\n", "  \n", "\x1f")
	if r.chance(4) { // what Go may leave to Salt's loader
		values = append(values, "2026-01-02", "1e3", "&x 1", "!!binary aGk=", "*x", "!!set {a}", "{? a : b}", "\ta")
		end = r.one("", "\t", "\u00a0", "\xff", "...\n", "\u2028", "a: 1\n", "{{")
	}

	var out strings.Builder
	for range 1 + r.IntN(4) {
		key := r.one("a", "b", "deep", "list", "1", "yes", "'q'", "other")
		fmt.Fprintf(&out, "%s: %s\n", key, values[r.IntN(len(values))])
	}
	return out.String() + end
}

// jsonOutput returns an output of cmd_json.
func (r extTrees) jsonOutput() string {
	values := []string{`1`, `"text"`, `[1, 2, {"x": null}]`, `{"x": 1, "x": 2}`, `-0`, `1.5`, `1e3`, `true`, `"\u00e4\n"`, `""`, `"ü"`, `{}`,
		`-1.0e-5`, `{"a":{"b":[[]]}}`, `9223372036854775807`}
	end := r.one("", "\n")
	if r.chance(4) {
		values = []string{`"\ud83d\ude00"`, `'a'`, `[1 2]`, `{"a" 1}`, `[1,]`, "\"\t\""}
		end = r.one("", " x", "\u00a0", "\xff")
	}

	v := values[r.IntN(len(values))]
	text := r.one(fmt.Sprintf(`{"a": %s, "deep": {"x": %s}}`, v, v), fmt.Sprintf(`{"list": [%s], "b": 1}`, v))
	if r.chance(6) {
		text = r.one(v, "", "[]", "null")
	}
	return r.one("", "", " ", "\n") + text + end
}

// command returns an entry that runs a command.
func (r extTrees) command(n int) any {
	file := filepath.Join(r.root, fmt.Sprint("out", n))
	name := r.one("cmd_yaml", "cmd_json")
	text := r.yamlText()
	if name == "cmd_json" {
		text = r.jsonOutput()
	}
	if r.chance(30) {
		text = r.one("", " \n", "text", "- 1\n- 2", "0", "null", "a: [", "false")
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}

	line := "cat " + file
	switch r.IntN(12) {
	case 0:
		line += "; exit 3"
	case 1:
		line += " ; echo error >&2"
	case 2:
		line = `printf '%%s' "{\"id\": \"%s\", \"twice\": \"%s\"}"`
	case 3:
		line = "(sleep 0.05; cat " + file + ") &"
	case 4:
		line = r.one("nosuchprogram x", "/nosuch/program", "false", "exit 1", "kill -9 $$", "", " ")
	case 5:
		line = r.one(`cat "`+file+`"`, `cat '`+file+`'`, `cat `+file+` "`, `c\at `+file, `cat ""`+file, `cat -- \`+file)
	case 6:
		line = `pwd; echo 'a: 1'`
	}
	return map[string]any{name: []any{any(line), any([]any{line}), any(map[string]any{"command": line}), any(line)}[r.IntN(4)]}
}

// chain returns an ext_pillar.
func (r extTrees) chain(n int) (out []any) {
	for i := range 1 + r.IntN(4) {
		switch r.IntN(8) {
		case 0:
			out = append(out, map[string]any{"nodegroups": []any{nil, "", "mine", []any{"deep"}, map[string]any{"pillar_name": "list"}, 5}[r.IntN(6)]})
		case 1, 2, 3:
			out = append(out, map[string]any{"file_tree": r.fileTree(n*10 + i)})
		case 4:
			out = append(out, map[string]any{"extra": []any{"x"}})
		default:
			out = append(out, r.command(n*10+i))
		}
	}
	return out
}

// TestExtPillarsAsSaltHasThem compiles random ext_pillar chains in Salt and here. SALTERN_EXT_PILLARS
// says how many there are, SALTERN_EXT_PILLARS_SEED repeats a run.
func TestExtPillarsAsSaltHasThem(t *testing.T) {
	python(t)
	chains, err := strconv.Atoi(os.Getenv("SALTERN_EXT_PILLARS"))
	if err != nil {
		chains = 60
	}
	seed, err := strconv.ParseUint(os.Getenv("SALTERN_EXT_PILLARS_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)

	root := tree(t, map[string]string{
		"p/top.sls":           "base:\n  '*': [a]\n",
		"p/a.sls":             "a: {x: 1}\nlist: [1, 2]\ndeep: {x: {y: 1}, z: text}\n",
		"pki/minions/web1":    "key",
		"shared/file.txt":     "shared\n",
		"shared/sub/x.y.z":    "shared\n",
		"ext/pillar/extra.py": parityTree["ext/pillar/extra.py"],
	})
	r := extTrees{rand.New(rand.NewPCG(seed, 2)), t, root, nil}
	var cases []parityCase
	var runners []*extpillar.Runner
	for n := range max(1, chains) {
		runner := extpillar.New(extpillar.Config{Modules: root + "/ext"})
		t.Cleanup(runner.Close)
		runners = append(runners, runner)
		cases = append(cases, r.parityCase(n, runner))
	}

	parity(t, root, cases, 1)

	var all extpillar.Stats
	for _, runner := range runners {
		all.InGo += runner.Stats().InGo
		all.InPython += runner.Stats().InPython
	}
	t.Logf("%d chains: %d entries in Go, %d left to Python", len(cases), all.InGo, all.InPython)
}

// parityCase returns a case. There are a few sets of options only: each starts another Python.
func (r extTrees) parityCase(n int, runner *extpillar.Runner) parityCase {
	way := []int{0, 0, 1, 1, 2, 3, 3, 4, 4, 5}[r.IntN(10)]
	strategy := []string{"smart", "recurse", "list", "overwrite", "none", "smart"}[way]
	lists := way%2 == 0
	first := way == 1
	r.groups = extGroups
	if way == 5 {
		r.groups = maps.Clone(extGroups)
		maps.Copy(r.groups, groupsForPython)
	}
	opts := map[string]any{
		"pki_dir":                        r.root + "/pki",
		"nodegroups":                     r.groups,
		"pillar_source_merging_strategy": strategy,
		"pillar_merge_lists":             lists,
		"ext_pillar_first":               first,
	}
	chain := r.chain(n)
	text, err := json.Marshal(chain)
	if err != nil {
		r.t.Fatal(err)
	}
	return parityCase{
		name:   fmt.Sprintf("chain %d %s %s", n, strategy, text),
		id:     "web1",
		roots:  map[string][]string{"base": {r.root + "/p"}},
		grains: map[string]any{"os": "Debian", "role": "db", "ipv4": []any{"10.1.2.3", "127.0.0.1"}},
		opts:   opts,
		chain:  chain,
		known:  true,
		change: func(c *Config) {
			c.External = runner
			c.Nodegroups, _ = toMap(r.groups).(*value.Map)
			c.Strategy = strategy
			c.MergeLists = lists
			c.ExtPillarFirst = first
		},
	}
}
