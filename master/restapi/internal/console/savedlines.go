package console

import (
	"regexp"
	"slices"
	"strings"

	"saltern/master/client"
	"saltern/master/value"
)

// savedMarkForm is an argument that stands for the value of a field of a saved job.
var savedMarkForm = regexp.MustCompile(`^\{[a-z][a-z0-9_]*\}$`)

// savedLines returns the arguments of a saved job as lines, as a user would type them.
func savedLines(args []any, named *value.Map) string {
	var lines []string
	for _, a := range args {
		lines = append(lines, savedWord(a))
	}
	for k, v := range named.All() {
		lines = append(lines, value.Str(k)+"="+savedWord(v))
	}
	return strings.Join(lines, "\n")
}

func savedWord(v any) string {
	if s, ok := v.(string); ok && savedMarkForm.MatchString(s) {
		return s
	}
	return strings.Join(argLines([]any{v}), " ")
}

// savedArguments returns the arguments that lines express: as on a command line, but a field's name
// in braces is a text and not a map.
func savedArguments(text string) (args []any, named *value.Map) {
	args, named = []any{}, value.NewMap()
	for _, line := range textLines(text) {
		if savedMarkForm.MatchString(line) {
			args = append(args, line)
			continue
		}
		if name, mark, ok := client.ParseKwarg(line); ok && savedMarkForm.MatchString(mark) {
			named.Set(name, mark)
			continue
		}
		for _, v := range parsedArgs([]string{line}) {
			if m, ok := v.(*value.Map); ok && m.Value("__kwarg__") == true {
				m.Delete("__kwarg__")
				named.Update(m)
				continue
			}
			args = append(args, v)
		}
	}
	return args, named
}

// mayRunOf returns the users and groups in lines such as "pam: alice, ops%". bad is a line that has
// another form, or "".
func mayRunOf(text string) (m *value.Map, bad string) {
	m = value.NewMap()
	for _, line := range textLines(text) {
		system, names, ok := strings.Cut(line, ":")
		if system = strings.TrimSpace(system); !ok || system == "" {
			return nil, line
		}
		list := m.List(system)
		for name := range strings.SplitSeq(names, ",") {
			if name = strings.TrimSpace(name); name != "" {
				list = append(list, name)
			}
		}
		m.Set(system, list)
	}
	return m, ""
}

// sameSettings reports whether two values mean the same for a saved object: numbers and truth values
// may be written as text.
func sameSettings(a, b any) bool {
	switch a := a.(type) {
	case *value.Map:
		other, ok := b.(*value.Map)
		if !ok || a.Len() != other.Len() {
			return a.Len() == 0 && b == nil
		}
		for k, v := range a.All() {
			if o, ok := other.GetAny(k); !ok || !sameSettings(v, o) {
				return false
			}
		}
		return true
	case []any:
		other, _ := b.([]any)
		return slices.EqualFunc(a, other, sameSettings)
	case nil:
		return b == nil
	}
	if m, ok := b.(*value.Map); ok && m.Len() == 0 {
		return false
	}
	return strings.EqualFold(value.Str(a), value.Str(b))
}
