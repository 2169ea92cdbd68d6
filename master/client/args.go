package client

import (
	"math/big"
	"strconv"
	"strings"
	"unicode"

	"saltern/master/saltyaml"
	"saltern/master/value"
)

// ParseKwarg splits "name=value". ok is false for a text in another form, for "name==value", and if
// the value contains a line break.
func ParseKwarg(arg string) (name, value string, ok bool) {
	name, value, found := strings.Cut(arg, "=")
	if !found || !isKwargName(name) {
		return "", "", false
	}
	if strings.HasPrefix(value, "=") || strings.Contains(strings.TrimSuffix(value, "\n"), "\n") {
		return "", "", false
	}
	return name, strings.TrimSuffix(value, "\n"), true
}

// isKwargName reports whether s may be the name in "name=value". Like Python's \w and \d it accepts
// letters and digits of all scripts (salt/utils/args.py KWARG_REGEX). It does not use a regular
// expression, because an argument may have megabytes.
func isKwargName(s string) bool {
	for i, r := range s {
		first := r == '_' || unicode.IsLetter(r)
		if !first && (i == 0 || r != '.' && r != '-' && !unicode.IsMark(r) && !unicode.IsNumber(r)) {
			return false
		}
	}
	return s != ""
}

// argumentLimits returns the limits for parsing one argument. Aliases may at most about double the
// size of the argument, because every recipient of the job gets the expanded argument.
func argumentLimits(arg string) saltyaml.Limits {
	return saltyaml.Limits{
		Bytes: 8 << 20,
		Depth: 64,
		Nodes: min(2*saltyaml.Estimate([]byte(arg))+64, 1<<20),
	}
}

// Yamlify parses an argument as YAML if Salt would parse it, and otherwise returns it as text
// (salt/utils/args.py yamlify_arg). Integers that need more than 64 bits become *big.Int.
func Yamlify(arg string) any {
	stripped := strings.TrimFunc(arg, unicode.IsSpace)
	switch {
	case stripped == "" || stripped == "---" || stripped == "...":
		return arg
	case strings.Contains(arg, "_") && strings.Trim(stripped, "0123456789_") == "":
		return arg
	case strings.ContainsAny(arg, "\t\r\n"):
		return arg
	case arg == "None":
		return nil
	}

	v, err := saltyaml.DecodeWithin([]byte(arg), "argument", argumentLimits(arg))
	if err != nil {
		return arg
	}
	if strings.Contains(arg, "#") {
		// YAML treats text after # as a comment. Keep that text unless the rest is a list or a map.
		if _, text := v.(string); text || v == nil {
			return arg
		}
		return v
	}

	switch v := v.(type) {
	case *value.Map:
		if !strings.HasPrefix(arg, "{") {
			return arg
		}
	case []any:
		if !strings.HasPrefix(arg, "[") {
			return arg
		}
	case string:
		if v == "" && (arg == "|" || arg == "!") {
			return arg
		}
	case nil:
		if arg == "!" {
			return arg
		}
	case bool, int64, uint64, float64, *big.Int:
	default:
		return arg
	}

	return v
}

// ParseArgs converts the words after a function on a command line into the arguments to publish:
// first the positional arguments, then, if there are keyword arguments, one map of these with
// "__kwarg__": true. The values of the keyword arguments in noParse remain text (salt/utils/args.py
// parse_input).
func ParseArgs(words []string, noParse map[string]bool) []any {
	return ParseTextArgs(words, noParse, func(int, string) bool { return false })
}

// ParseTextArgs works like ParseArgs, but an argument for which isText returns true becomes no number,
// truth value or null. isText gets the position of an argument without a name, or -1 and the name.
func ParseTextArgs(words []string, noParse map[string]bool, isText func(position int, name string) bool) []any {
	args := []any{}
	kwargs := value.NewMap("__kwarg__", true)
	for _, w := range words {
		name, text, ok := ParseKwarg(w)
		switch {
		case !ok && isText(len(args), ""):
			args = append(args, textOr(Yamlify(w), w))
		case !ok:
			args = append(args, jidText(Yamlify(w)))
		case noParse[name]:
			kwargs.Set(name, text)
		case isText(-1, name):
			kwargs.Set(name, textOr(Yamlify(text), text))
		default:
			kwargs.Set(name, Yamlify(text))
		}
	}

	if kwargs.Len() > 1 {
		args = append(args, kwargs)
	}

	return args
}

// SplitArgs separates the arguments that a function was sent: name=value in a text, and a map with "__kwarg__": true,
// are named (salt/utils/args.py parse_input). parse reads the text of an argument; name is "" for one without a name.
func SplitArgs(given []any, parse func(name, text string) any) (args []any, named *value.Map) {
	args = []any{}
	named = value.NewMap()
	for _, a := range given {
		switch a := a.(type) {
		case string:
			if name, text, ok := ParseKwarg(a); ok {
				named.Set(name, parse(name, text))
			} else {
				args = append(args, parse("", a))
			}
			continue
		case *value.Map:
			if a.Value("__kwarg__") == true {
				named.Update(a)
				named.Delete("__kwarg__")
				continue
			}
		}
		args = append(args, a)
	}
	return args, named
}

// textOr returns a parsed argument if it is a text, a list or a map, and otherwise the text as it was
// typed.
func textOr(parsed any, typed string) any {
	switch parsed.(type) {
	case string, []any, *value.Map:
		return parsed
	}
	return typed
}

// jidText converts a job id that was parsed as a large integer to text, also inside lists and maps.
func jidText(v any) any {
	var s string
	switch v := v.(type) {
	case int64:
		s = strconv.FormatInt(v, 10)
	case uint64:
		s = strconv.FormatUint(v, 10)
	case *big.Int:
		s = v.String()
	default:
		return v
	}

	if len(s) == 20 && strings.Trim(s, "0123456789") == "" {
		return s
	}

	return v
}

// ArgsError is a mistake in the arguments of a compound command.
type ArgsError string

func (e ArgsError) Error() string { return string(e) }

// ParseCompound distributes the words after "fun1,fun2" among the functions (salt/utils/parsers.py
// SaltCMDOptionParser). sep separates the arguments of two functions. sep is a word by itself or,
// in the old form, a part of a word.
func ParseCompound(funs []string, words []string, sep string, noParse map[string]bool) ([]any, error) {
	groups := [][]string{nil}
	put := func(w string) { groups[len(groups)-1] = append(groups[len(groups)-1], w) }
	alone := 0
	for _, w := range words {
		if w == sep {
			alone++
		}
	}

	switch alone {
	case len(funs) - 1:
		for _, w := range words {
			if w == sep {
				groups = append(groups, nil)
				continue
			}
			put(w)
		}
	default:
		for _, w := range words {
			if sep == "" || !strings.Contains(w, sep) {
				put(w)
				continue
			}

			for i, part := range strings.Split(w, sep) {
				if i > 0 {
					groups = append(groups, nil)
				}
				if part != "" {
					put(part)
				}
			}
		}

		if len(funs) > len(groups) {
			return nil, ArgsError("Cannot execute compound command without defining all arguments.")
		}
		if len(funs) < len(groups) {
			return nil, ArgsError("Cannot execute compound command with more arguments than commands.")
		}
	}

	args := make([]any, 0, len(groups))
	for _, g := range groups {
		args = append(args, ParseArgs(g, noParse))
	}

	return args, nil
}
