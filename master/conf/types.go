package conf

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"saltern/master/saltyaml"
	"saltern/master/value"
)

func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case bool:
		return "the boolean " + strconv.FormatBool(v)
	case int64, uint64, *big.Int:
		return fmt.Sprintf("the number %v", v)
	case float64:
		return "the number " + strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		if len(v) > 60 {
			v = v[:60] + "..."
		}
		return fmt.Sprintf("the text %q", v)
	case []byte:
		return "binary data"
	case []any:
		return "a list"
	case *value.Map:
		return "a map"
	}

	return fmt.Sprintf("%T", v)
}

var wanted = map[string]string{
	"bool": "true or false", "int": "a whole number", "float": "a number",
	"str": "text", "list": "a list", "dict": "a map", "null": "nothing", "any": "anything",
}

// coerce converts a value to one of the types by the rules of Salt's _validate_opts. It accepts a
// number written as text, a text written as a number or boolean, and an empty list where the type
// is a map.
func coerce(v any, types []string) (any, error) {
	for _, t := range types {
		if hasType(v, t) {
			return v, nil
		}
	}
	for _, t := range types {
		if c, ok := convert(v, t); ok {
			return c, nil
		}
	}
	return nil, fmt.Errorf("expected %s, found %s", wantedWords(types), typeName(v))
}

// wantedWords returns a description of types for a message.
func wantedWords(types []string) string {
	words := make([]string, 0, len(types))
	for _, t := range types {
		if t != "null" {
			words = append(words, wanted[t])
		}
	}
	return strings.Join(words, " or ")
}

// kindOf returns the type of a value for a message, as typeName does. The text never contains the
// value itself.
func kindOf(v any) string {
	switch v.(type) {
	case bool:
		return "a boolean"
	case int64, uint64, *big.Int, float64:
		return "a number"
	case string:
		return "text"
	}
	return typeName(v)
}

func hasType(v any, t string) bool {
	if t == "any" {
		return true
	}

	switch v.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "bool"
	case int64, uint64, *big.Int:
		return t == "int"
	case float64:
		return t == "float"
	case string:
		return t == "str"
	case []any:
		return t == "list"
	case *value.Map:
		return t == "dict"
	}

	return false
}

func convert(v any, t string) (any, bool) {
	switch t {
	case "int":
		if s, ok := v.(string); ok {
			n, err := strconv.ParseInt(strings.ReplaceAll(strings.TrimSpace(s), "_", ""), 10, 64)
			return n, err == nil
		}
	case "float":
		switch v := v.(type) {
		case int64:
			return v, true // unchanged; code that expects a float accepts an integer, too
		case string:
			f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			return f, err == nil
		}
	case "str":
		switch v := v.(type) {
		case int64, uint64, *big.Int:
			return fmt.Sprint(v), true
		case float64:
			b, err := saltyaml.Encode(v)
			return strings.TrimSpace(string(b)), err == nil
		case bool:
			if v {
				return "True", true
			}
			return "False", true
		}
	case "dict":
		if l, ok := v.([]any); ok && len(l) == 0 {
			return &value.Map{}, true
		}
	}

	return nil, false
}
