package runner

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/master/value"
)

// textArgument returns an argument as text, or "" if the argument is nil or missing. It also
// accepts a number, because command lines are parsed as YAML.
func (c *call) textArgument(name string) string { return textOf(c.values[name]) }

func textOf(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		return string(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case int:
		return strconv.Itoa(v)
	case bool:
		if v {
			return "True"
		}
		return "False"
	}

	return fmt.Sprint(v)
}

func (c *call) textOr(name, def string) string {
	if s := c.textArgument(name); s != "" {
		return s
	}
	return def
}

// flagArgument returns whether an argument is true in Python's sense, or def when it is missing.
func (c *call) flagArgument(name string, def bool) bool {
	v, ok := c.values[name]
	if !ok {
		return def
	}
	return value.Truth(v)
}

// number returns an argument as a number, or def when it is missing.
func (c *call) number(name string, def float64) (float64, error) {
	switch v := c.values[name].(type) {
	case nil:
		return def, nil
	case int64:
		return float64(v), nil
	case int:
		return float64(v), nil
	case float64:
		return v, nil
	case string:
		if f, err := strconv.ParseFloat(v, 64); err == nil {
			return f, nil
		}
	}

	return 0, &ArgumentError{Reason: fmt.Sprintf("%s must be a number", name)}
}

// seconds returns an argument as a duration, or zero when the argument is missing.
func (c *call) seconds(name string) (time.Duration, error) {
	f, err := c.number(name, 0)
	if err != nil || f < 0 || f > 1e6 {
		return 0, &ArgumentError{Reason: fmt.Sprintf("%s must be a number of seconds", name)}
	}
	return time.Duration(f * float64(time.Second)), nil
}

// splitInput converts a list, or a text with commas, into texts (salt/utils/args.py split_input).
// For nil it returns nil.
func splitInput(v any) []string {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		out := make([]string, len(v))
		for i := range v {
			out[i] = textOf(v[i])
		}
		return out
	case []string:
		return v
	}

	parts := strings.Split(textOf(v), ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}

	return parts
}

func anyList(s []string) []any {
	out := make([]any, len(s))
	for i := range s {
		out[i] = s[i]
	}
	return out
}

// sortedMap returns the entries of a map in the order of their keys.
func sortedMap[V any](m map[string]V) *value.Map {
	out := &value.Map{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out.Set(k, any(m[k]))
	}
	return out
}

func get(m *value.Map, key string) any {
	v, _ := m.Get(key)
	return v
}

func (c *call) progress(kv ...any) {
	if c.Progress != nil {
		c.Progress(value.NewMap(kv...))
	}
}

// showProgress reports progress if the argument display_progress asks for it.
func (c *call) showProgress(format string, args ...any) {
	if c.flagArgument("display_progress", false) {
		c.progress("message", fmt.Sprintf(format, args...))
	}
}

func requirePart(part string, missing bool) error {
	if missing {
		return fmt.Errorf("%s: %w", part, ErrUnavailable)
	}
	return nil
}
