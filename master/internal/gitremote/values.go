package gitremote

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"saltern/master/value"
)

// Text returns the value of an option as Python's str() prints it (enforce_types).
func Text(v any) string {
	if v == nil {
		return ""
	}
	return value.Str(v)
}

// Texts returns the texts in the value of an option: a list of texts, or one text with commas.
func Texts(v any) (out []string) {
	l, ok := v.([]any)
	if !ok {
		for s := range strings.SplitSeq(Text(v), ",") {
			out = append(out, strings.TrimSpace(s))
		}
		return out
	}
	for _, e := range l {
		out = append(out, Text(e))
	}
	return out
}

func number(v any) (int64, error) {
	switch v := v.(type) {
	case int64:
		return v, nil
	case float64:
		return int64(v), nil
	case string:
		if n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 32); err == nil {
			return n, nil
		}
	}
	return 0, errors.New("this is not a number")
}

// flattenMaps merges a list of maps into one map. If v is a map, it returns v (salt/utils/data.py
// repack_dictlist).
func flattenMaps(v any) (*value.Map, error) {
	out := value.NewMap()
	switch v := v.(type) {
	case *value.Map:
		return v, nil
	case []any:
		for _, e := range v {
			m, ok := e.(*value.Map)
			if !ok {
				return nil, errors.New("this is not a list of options")
			}
			out.Update(m)
		}
	default:
		return nil, errors.New("this is not a list of options")
	}

	return out, nil
}

// Envs parses the value of the option saltenv, the settings of environments.
func Envs(v any) (map[string]Env, error) {
	all, err := flattenMaps(v)
	if err != nil {
		return nil, err
	}

	out := map[string]Env{}
	for k, opts := range all.All() {
		m, err := flattenMaps(opts)
		if err != nil {
			return nil, fmt.Errorf("environment %.60q: %w", Text(k), err)
		}

		var env Env
		for name, v := range m.All() {
			text := Text(v)
			switch name {
			case "ref":
				env.Ref = &text
			case "root":
				if text, err = cleanFolder(text); err != nil {
					return nil, fmt.Errorf("environment %.60q: root: %w", Text(k), err)
				}
				env.Root = &text
			case "mountpoint":
				if text, err = cleanFolder(stripProto(text)); err != nil {
					return nil, fmt.Errorf("environment %.60q: mountpoint: %w", Text(k), err)
				}
				env.Mountpoint = &text
			default:
				return nil, fmt.Errorf("environment %.60q: there is no option %.60q; there are ref, root and mountpoint",
					Text(k), Text(name))
			}
		}

		out[Text(k)] = env
	}

	return out, nil
}

// stripProto removes salt:// from a mountpoint (salt/utils/url.py strip_proto).
func stripProto(s string) string {
	if _, after, ok := strings.Cut(s, "://"); ok {
		return after
	}
	return s
}

// cleanFolder returns a relative path without leading and trailing slashes. It returns an error if
// the path leads out of the root.
func cleanFolder(p string) (string, error) {
	if len(p) > 4096 || strings.ContainsAny(p, "\x00\n") {
		return "", errors.New("this is not a path")
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return "", errors.New("a path with .. leads out of the repository")
		}
	}
	return strings.Trim(path.Clean("/"+p), "/"), nil
}

// IsHex reports whether a name may be a commit id or a part of one.
func IsHex(s string) bool {
	return s != "" && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

// IsCommit reports whether a name is a full commit id, not an abbreviated one.
func IsCommit(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}
