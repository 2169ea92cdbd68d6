package conf

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/options.md")

// saltOption is what a release of Salt knows about an option.
type saltOption struct {
	types    []string // nil when Salt does not check it
	inManual bool
	preset   any
	simple   bool // preset is known
}

// saltOptions reads testdata/salt.txt.
func saltOptions(t *testing.T) map[string]saltOption {
	t.Helper()
	b, err := os.ReadFile("testdata/salt.txt")
	if err != nil {
		t.Fatal(err)
	}

	all := map[string]saltOption{}
	for line := range strings.Lines(string(b)) {
		if line[0] == '#' {
			continue
		}

		row, preset, simple := strings.Cut(strings.TrimSpace(line), " = ")
		f := strings.Fields(row)
		o := saltOption{inManual: f[2] == "page", simple: simple}
		if f[1] != "-" {
			o.types = strings.Split(f[1], ",")
		}

		if simple {
			if err := json.Unmarshal([]byte(preset), &o.preset); err != nil {
				t.Fatalf("%s: %v", f[0], err)
			}
		}

		all[f[0]] = o
	}

	if len(all) < 500 {
		t.Fatalf("only %d options are recorded", len(all))
	}

	return all
}

// TestSaltsOptions: the table contains each option of Salt, with Salt's types and defaults.
func TestSaltsOptions(t *testing.T) {
	presets, err := builtin().defaults()
	if err != nil {
		t.Fatal(err)
	}

	// Salt's own modules take seconds with fractions, "dynamic" for memory, and the name of a
	// file with the reactor's rules, and engines by their names.
	wider := map[string]string{
		"engines":            "list dict",
		"gather_job_timeout": "float",
		"ipc_write_buffer":   "int str",
		"reactor":            "list str",
	}

	for name, salt := range saltOptions(t) {
		o, has := builtin().options[name]
		if !has {
			t.Errorf("option %s of Salt is in no row of options.txt", name)
			continue
		}

		want := salt.types
		if w := wider[name]; w != "" {
			want = strings.Fields(w)
		}

		if want != nil && !slices.Equal(o.types, want) {
			t.Errorf("%s has the types %v, in Salt %v", name, o.types, want)
		}

		if got, has := presets.Get(name); salt.simple && (!has || jsonForm(t, got) != salt.preset) {
			t.Errorf("%s is %v by default (%v), in Salt %v", name, got, has, salt.preset)
		}
	}

	for name := range presets.All() {
		if _, ok := saltOptions(t)[fmt.Sprint(name)]; !ok {
			t.Errorf("%v has a default and is no option of Salt", name)
		}
	}
}

func TestBadRows(t *testing.T) {
	for row, want := range map[string]string{
		"a": "no type", "a | word": `type "word"`, "a | int | 1 | perhaps": `use "perhaps"`, "a | int | 1 | info": "no reason",
		"a | int | 1 | used hush": `secrecy "hush"`, "a | int\na | int": "twice",
	} {
		if _, err := readTable("## Group | x.md | used\n" + row +
			"\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", row, err, want)
		}
	}
}

// TestManual: docs/options.md has the content that the table gives.
func TestManual(t *testing.T) {
	const page = "../../docs/options.md"
	want := manual(builtin())
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != want {
		t.Errorf("%s is not what options.txt says (%v): go test ./master/conf -update", page, err)
	}
}

// TestNotObeyed: docs/configuration.md lists the options and keys that no program uses, as the
// tables have them.
func TestNotObeyed(t *testing.T) {
	const page = "../../docs/configuration.md"
	const begin, end = "<!-- Made from master/conf: go test ./master/conf -update -->\n", "<!-- End of what is made. -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}

	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the list", page)
	}

	want := before + begin + notObeyed() + end + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}

	if string(text) != want {
		t.Errorf("%s is not what the tables say: go test ./master/conf -update", page)
	}
}

// notObeyed returns the table of the options, and of the keys inside options, that no program uses,
// ordered by the reason.
func notObeyed() string {
	names := map[string][]string{}
	var reasons []string
	add := func(name string, o option) {
		reason := o.remark
		if o.use == "warn" {
			reason = "**" + reason + "**"
		}

		if names[reason] == nil {
			reasons = append(reasons, reason)
		}

		names[reason] = append(names[reason], "`"+name+"`")
	}

	t := builtin()
	for _, g := range t.groups {
		for _, name := range g.names {
			if o := t.options[name]; o.use == "info" || o.use == "warn" {
				add(name, o)
			}
		}
	}

	var below func(row *part, name string)
	below = func(row *part, name string) {
		if row.use == "info" || row.use == "warn" {
			add(name, row.option)
		}
		for _, key := range slices.Sorted(maps.Keys(row.keys)) {
			below(row.keys[key], name+" > "+key)
		}
	}

	for _, name := range builtinParts().keyNames() {
		below(builtinParts().keys[name], name)
	}

	var b strings.Builder
	b.WriteString("| why | options |\n| --- | --- |\n")
	for _, reason := range reasons {
		fmt.Fprintf(&b, "| %s | %s |\n", reason, strings.Join(names[reason], ", "))
	}

	return b.String()
}

// manual is the page about all options.
func manual(t *table) string {
	var b strings.Builder
	b.WriteString(`# Options of the master

<!-- Made from master/conf/options.txt: go test ./master/conf -update -->

All options of Salt 3008.3 and Saltern's own, with their types, their defaults and what
Saltern does with them. What they mean is in
[Salt's manual](https://docs.saltproject.io/en/latest/ref/configuration/master.html).

| word | meaning |
| --- | --- |
| used | by the master, or by the tools |
| through Python | Salt's library reads it, in a Python that the master starts ([which](configuration.md#renderers-and-python)) |
| for … | a program of Salt's that reads the same file uses it |
| not used | a value other than the default causes a note at the start, in ` + "`salt-master --check`" + ` and in ` + "`applianced config check`" + `; **not used**: a warning, since something that was asked for does not happen |
| hidden | ` + "`config.values`, `config.get`" + ` and ` + "`pillar_opts`" + ` show ` + "`" + Hidden + "`" + ` |
`)

	for _, g := range t.groups {
		fmt.Fprintf(&b, "\n## %s\n\n", g.title)
		if g.page != "" {
			file, _, _ := strings.Cut(g.page, "#")
			fmt.Fprintf(&b, "See [%s](%s).\n\n", file, g.page)
		}

		b.WriteString("| option | types | default | Saltern |\n| --- | --- | --- | --- |\n")
		for _, name := range g.names {
			o := t.options[name]
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, strings.Join(o.types, ", "),
				shownPreset(o.preset), o.inWords())
		}
	}

	return b.String()
}

// shownPreset is a default for a table, cut where it is long.
func shownPreset(preset string) string {
	if r := []rune(preset); len(r) > 60 {
		preset = string(r[:60]) + "…"
	}
	if preset == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(preset, "|", `\|`) + "`"
}

// inWords says what becomes of an option.
func (o option) inWords() string {
	text := map[string]string{
		"used":   "used",
		"python": "through Python",
		"other":  "for " + o.remark,
		"info":   "not used: " + o.remark,
		"warn":   "**not used**: " + o.remark,
	}[o.use]

	if !o.ignored() && o.remark != "" {
		text += ": " + o.remark
	}

	switch o.secrecy {
	case "secret":
		text += "; hidden"
	case "private":
		text += "; hidden, also from templates"
	case "arguments":
		text += "; arguments are hidden"
	}

	return text
}
