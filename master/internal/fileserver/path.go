package fileserver

import (
	"path"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxPath bounds paths from minions, in bytes.
const maxPath = 4096

// parseQuery converts the path and environment of a request into a Query, by Salt's rules
// (salt/fileserver/__init__.py find_file, salt/utils/url.py). If the path starts with a pipe, the
// rest is a plain name; otherwise a question mark starts options. ok is false if no file below a
// root can have that path.
func parseQuery(p, saltenv string) (q Query, ok bool) {
	q = Query{Saltenv: saltenv, Index: -1}
	if len(p) > maxPath || !utf8.ValidString(p) || strings.ContainsRune(p, 0) {
		return q, false
	}

	if strings.HasPrefix(p, "|") {
		p = strings.TrimLeft(p, "|")
	} else if name, options, found := strings.Cut(p, "?"); found {
		p = name
		options, _, _ = strings.Cut(options, "?")
		for _, option := range strings.Split(options, "&") {
			key, val, _ := strings.Cut(option, "=")
			switch key {
			case "saltenv":
				q.Saltenv = val
			case "index":
				n, err := strconv.Atoi(val)
				if err != nil || n < 0 || n > 1000 {
					return q, false
				}
				q.Index = n
			}
		}
	}

	if path.IsAbs(p) || strings.Contains(p, "../") {
		return q, false
	}

	q.Path = path.Clean(p)
	if q.Path == "." || q.Path == ".." || strings.HasPrefix(q.Path, "../") {
		return q, false
	}

	return q, true
}

// validEnv reports whether the name of an environment may replace __env__ in a path.
func validEnv(env string) bool {
	return env != "" && len(env) <= 255 && utf8.ValidString(env) && !strings.HasPrefix(env, ".") &&
		!strings.ContainsAny(env, "/\\\x00\n\r")
}

// textOf returns Python's str() of v if v has a type that an environment name or a path may have.
// ok is false for other types.
func textOf(v any) (s string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case nil:
		return "None", true
	case int64:
		return strconv.FormatInt(v, 10), true
	case bool:
		if v {
			return "True", true
		}
		return "False", true
	}

	return "", false
}
