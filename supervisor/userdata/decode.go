package userdata

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	"go.yaml.in/yaml/v3"

	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
)

// These bounds limit what a few lines of YAML with anchors can expand to.
const (
	maxDepth  = 32
	maxValues = 10_000
)

// decoder decodes a YAML mapping into answers. It collects all faults, each with its line and the
// name of the answer.
//
// The YAML library's own decoder reports faults without the line and the answer's name, and it
// interprets some text by YAML's own rules.
type decoder struct {
	faults *multierror.Error
	values int
}

// decode turns the mapping n into answers.
func decode(n *yaml.Node) (*setup.Answers, error) {
	var d decoder
	var a setup.Answers
	d.fillField(reflect.ValueOf(&a).Elem(), n, "")
	if err := d.faults.ErrorOrNil(); err != nil {
		return nil, err
	}
	return &a, nil
}

func (d *decoder) addFault(n *yaml.Node, format string, args ...any) {
	d.faults = multierror.Append(d.faults, fmt.Errorf("line %d: %w", n.Line, fmt.Errorf(format, args...)))
}

// fillField decodes a node into a field of the answers. An empty value leaves the field unchanged.
func (d *decoder) fillField(v reflect.Value, n *yaml.Node, key string) {
	n = target(n)
	if n.ShortTag() == "!!null" {
		return
	}

	switch v.Kind() {
	case reflect.Struct:
		for _, p := range d.readPairs(n, key) {
			name := joinKeys(key, p.key.Value)
			field, ok := setup.AnswerField(v.Type(), []string{p.key.Value})
			if !ok {
				d.addFault(p.key, "%.60s is not an answer; applianced config schema lists them", name)
				continue
			}
			d.fillField(v.FieldByIndex(field.Index), p.value, name)
		}
	case reflect.Map:
		if tree, ok := d.readTree(n, reflect.TypeFor[settings.Settings](), key, 0).(map[string]any); ok {
			v.Set(reflect.ValueOf(setup.Tree(tree)))
		} else {
			d.addFault(n, "%s may hold keys of appliance.yaml, not %s", key, kindOf(n))
		}
	case reflect.Slice:
		if texts, ok := d.readTexts(n, key); ok {
			v.Set(reflect.ValueOf(texts))
		}
	case reflect.Pointer:
		truth := reflect.New(v.Type().Elem())
		d.fillField(truth.Elem(), n, key)
		v.Set(truth)
	case reflect.Bool:
		truth, err := setup.ParseTruth(n.Value)
		switch {
		case n.Kind != yaml.ScalarNode:
			d.addFault(n, "%s may hold true or false, not %s", key, kindOf(n))
		case err != nil:
			d.addFault(n, "%s %w", key, err)
		default:
			v.SetBool(truth)
		}
	default:
		if text, ok := d.readText(n, key); ok {
			v.SetString(text)
		}
	}
}

// readText returns the text of a value as it is written, even where YAML would change it: 0042
// stays 0042. It returns false after a fault.
func (d *decoder) readText(n *yaml.Node, key string) (string, bool) {
	n = target(n)
	switch {
	case n.Kind != yaml.ScalarNode:
		d.addFault(n, "%s may hold text, not %s", key, kindOf(n))
	case n.ShortTag() == "!!binary":
		d.addFault(n, "%s holds bytes that are not text (!!binary)", key)
	case !writtenTag(n.ShortTag()):
		d.addFault(n,
			"%s begins with the tag %.40s: text that begins with an exclamation mark stands in quotes", key,
			n.Tag)
	case strings.Contains(n.Value, "\x00"):
		d.addFault(n, "%s holds a NUL byte; text may not", key)
	default:
		return n.Value, true
	}

	return "", false
}

// writtenTag reports whether YAML may assign this tag to unquoted text.
func writtenTag(tag string) bool {
	switch tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp", "!!null":
		return true
	}
	return false
}

func (d *decoder) readTexts(n *yaml.Node, key string) ([]string, bool) {
	if n.Kind != yaml.SequenceNode {
		d.addFault(n, "%s may hold a list, such as [a, b], not %s", key, kindOf(n))
		return nil, false
	}
	out := make([]string, 0, len(n.Content))
	for _, e := range n.Content {
		text, ok := d.readText(e, key)
		if !ok {
			return nil, false
		}
		out = append(out, text)
	}
	return out, true
}

// readTree reads a value of appliance.yaml. t is its type there. t may be nil: the value has no
// type there, such as one of the master's options, and is read by YAML's rules.
func (d *decoder) readTree(n *yaml.Node, t reflect.Type, key string, depth int) any {
	n = target(n)
	d.values++
	if depth > maxDepth || d.values > maxValues {
		if d.values != maxValues+2 { // report this fault only once
			d.values = maxValues + 1
			d.addFault(n, "%s is nested too deeply, or has more than %d values", key, maxValues)
		}
		d.values = maxValues + 1
		return nil
	}

	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for _, p := range d.readPairs(n, key) {
			m[p.key.Value] = d.readTree(p.value, fieldType(t, p.key.Value), joinKeys(key, p.key.Value), depth+1)
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, e := range n.Content {
			list = append(list, d.readTree(e, elementType(t), key, depth+1))
		}
		return list
	}

	if n.ShortTag() == "!!null" {
		return nil
	}
	if textual(t) || n.ShortTag() == "!!timestamp" {
		text, _ := d.readText(n, key)
		return text
	}

	var v any
	if err := n.Decode(&v); err != nil {
		d.addFault(n, "%s cannot be read: %.20s of YAML", key, n.ShortTag())
	}

	return v
}

// textual reports whether a value of type t is written as text in appliance.yaml.
func textual(t reflect.Type) bool {
	return t != nil && (t.Kind() == reflect.String || t == reflect.TypeFor[time.Duration]())
}

func fieldType(t reflect.Type, name string) reflect.Type {
	if t == nil {
		return nil
	}
	field, ok := setup.AnswerField(t, []string{name})
	if !ok {
		return nil
	}
	return field.Type
}

func elementType(t reflect.Type) reflect.Type {
	if t == nil || t.Kind() != reflect.Slice {
		return nil
	}
	return t.Elem()
}

// pair is a key with its value.
type pair struct{ key, value *yaml.Node }

// readPairs returns the pairs of a mapping, including pairs that the mapping merges (<<). A key
// that appears twice is a fault.
func (d *decoder) readPairs(n *yaml.Node, key string) (out []pair) {
	n = target(n)
	if n.Kind != yaml.MappingNode {
		if key == "" {
			d.addFault(n, "%w", errNoMapping)
		} else {
			d.addFault(n, "%s may hold answers (key: value), not %s", key, kindOf(n))
		}
		return nil
	}

	seen := map[string]bool{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := target(n.Content[i]), n.Content[i+1]
		switch {
		case k.Kind != yaml.ScalarNode:
			d.addFault(k, "a key is text, not %s", kindOf(k))
		case k.ShortTag() == "!!merge":
			merged = append(merged, mergedOf(v)...)
		case seen[k.Value]:
			d.addFault(k, "%.60s stands there twice", joinKeys(key, k.Value))
		default:
			seen[k.Value] = true
			out = append(out, pair{k, v})
		}
	}

	for _, m := range merged { // The mapping's keys override merged keys, and earlier merges override later ones.
		for i := 0; i+1 < len(m.Content); i += 2 {
			if k := target(m.Content[i]); k.Kind == yaml.ScalarNode && k.ShortTag() != "!!merge" && !seen[k.Value] {
				seen[k.Value] = true
				out = append(out, pair{k, m.Content[i+1]})
			}
		}
	}

	return out
}

// mergedOf returns the mappings that a merge key names.
func mergedOf(n *yaml.Node) (out []*yaml.Node) {
	n = target(n)
	if n.Kind == yaml.MappingNode {
		return []*yaml.Node{n}
	}
	for _, e := range n.Content {
		if e = target(e); e.Kind == yaml.MappingNode {
			out = append(out, e)
		}
	}
	return out
}

var errNoMapping = errors.New("is not a list of answers (key: value)")

// target follows aliases to the node that they name.
func target(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "keys and values"
	case yaml.SequenceNode:
		return "a list"
	}
	return "one value"
}

func joinKeys(prefix, key string) string {
	if prefix == "" {
		return key
	}
	return prefix + "." + key
}
