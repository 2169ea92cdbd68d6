package conf

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestEveryOptionIsObeyedOrNamed sets each option of Salt 3008.3, and each key inside an option
// that Salt documents, to a value that is not the default. The table must say which program uses
// it, or a note must name it with file and line.
func TestEveryOptionIsObeyedOrNamed(t *testing.T) {
	var whole []setKey
	for name, salt := range saltOptions(t) {
		value := notDefault(builtin().options[name], salt)
		whole = append(whole, setKey{[]string{name}, fmt.Sprintf("%s: %s\n", name, value)})
	}

	obeyedOrNamed(t, whole)

	// A file contains one key of each option: the first file the first keys, the second file the
	// second keys, and so on.
	var files [][]setKey
	ofOption := map[string]int{}
	for path, value := range saltParts(t) {
		keys := strings.Split(path, " > ")
		last := len(keys) - 1
		n := ofOption[keys[0]]
		ofOption[keys[0]]++

		if n == len(files) {
			files = append(files, nil)
		}

		files[n] = append(files[n], setKey{keys, nest(keys[:last], keys[last], value)})
	}

	for _, keys := range files {
		obeyedOrNamed(t, keys)
	}
}

// setKey is an option, or a key inside of one, and the lines that set it.
type setKey struct {
	path []string
	text string
}

// obeyedOrNamed checks keys of different options. A key that Load refuses with its position counts
// as named; the other keys are then checked without that key.
func obeyedOrNamed(t *testing.T, keys []setKey) {
	t.Helper()
	for {
		text := ""
		firsts := make([]int, len(keys))
		for i, key := range keys {
			firsts[i] = strings.Count(text, "\n") + 1
			text += key.text
		}

		m, err := loader().Load(write(t, map[string]string{"master": text}))
		if err == nil {
			for i, key := range keys {
				key.obeyedOrNamed(t, m, firsts[i])
			}
			return
		}

		left := keys[:0:0]
		for i, key := range keys {
			refused := slices.ContainsFunc(Faults(err),
				func(fault error) bool { return key.holds(fault.(*Fault).Path, fault.(*Fault).Line, firsts[i]) })
			if !refused {
				left = append(left, key)
			}
		}

		if len(left) == len(keys) {
			t.Fatalf("refused without a place: %v", err)
		}

		keys = left
	}
}

// holds reports whether a line of a file is one of the key, which begins at the line first.
func (k setKey) holds(path string, line, first int) bool {
	return strings.HasSuffix(path, "/master") && line >= first && line < first+strings.Count(k.text, "\n")
}

func (k setKey) obeyedOrNamed(t *testing.T, m *Master, first int) {
	t.Helper()
	option := k.path[0]
	use, remark := Use(option)
	if len(k.path) > 1 && builtinParts().keys[option] != nil && !builtin().options[option].ignored() {
		use, remark = PartUse(option, k.path[1:]...)
	}

	named := slices.ContainsFunc(m.Notes,
		func(n Note) bool { return n.Option == option && k.holds(n.Path, n.Line, first) })
	switch {
	case use == "":
		t.Errorf("neither obeyed nor named:\n%s", k.text)
	case use == "other" && remark == "":
		t.Errorf("obeyed by another program, and not said by which:\n%s", k.text)
	case (use == "info" || use == "warn") && !named:
		t.Errorf("not obeyed and not named:\n%s", k.text)
	}
}

// notDefault is a value of an option's first type that differs from Salt's default.
func notDefault(o option, salt saltOption) string {
	typ := o.types[0]
	if typ == "null" && len(o.types) > 1 {
		typ = o.types[1]
	}

	switch typ {
	case "bool":
		return fmt.Sprint(salt.preset != true)
	case "int":
		return "4321"
	case "float":
		return "43.5"
	case "list":
		return "[other]"
	case "dict":
		return "{other: [other]}"
	}

	return "other"
}

// saltParts reads testdata/salt-parts.txt: values by paths.
func saltParts(t *testing.T) map[string]string {
	t.Helper()
	f, err := os.Open("testdata/salt-parts.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	parts := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}

		path, value, ok := strings.Cut(lines.Text(), " = ")
		if !ok {
			t.Fatalf("%q is no row", lines.Text())
		}

		parts[path] = value
	}

	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}

	return parts
}
