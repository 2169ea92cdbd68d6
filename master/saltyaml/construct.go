package saltyaml

import (
	"fmt"
	"math"
	"math/big"
	"strings"

	"go.yaml.in/yaml/v3"

	"saltern/master/value"
)

// Short forms of YAML tags, as the parser returns them.
const (
	tagNull      = "!!null"
	tagBool      = "!!bool"
	tagInt       = "!!int"
	tagFloat     = "!!float"
	tagStr       = "!!str"
	tagBinary    = "!!binary"
	tagTimestamp = "!!timestamp"
	tagMerge     = "!!merge"
	tagValue     = "!!value"
	tagSeq       = "!!seq"
	tagMap       = "!!map"
	tagSet       = "!!set"
	tagOmap      = "!!omap"
	tagPairs     = "!!pairs"
	tagUnicode   = "!!python/unicode"
)

type pair struct{ key, val *yaml.Node }

// constructor converts nodes into values. Its budget counts every created value, so that aliases
// and merge keys cannot multiply the values without limit.
type constructor struct {
	limits Limits
	nodes  int
	depth  int
	merged map[*yaml.Node][]pair
	open   map[*yaml.Node]bool // containers under construction; an alias to one is a loop
}

func faultAt(n *yaml.Node, format string, args ...any) error {
	return &Error{Line: n.Line, Err: fmt.Errorf(format, args...)}
}

func (c *constructor) document(root *yaml.Node) (any, error) {
	if err := c.anchors(root, make(map[string]int), 0); err != nil {
		return nil, err
	}
	return c.buildValue(root)
}

// anchors returns an error for an anchor that is defined twice, as PyYAML's composer does.
func (c *constructor) anchors(n *yaml.Node, seen map[string]int, depth int) error {
	if depth > c.limits.Depth {
		return faultAt(n, "%w: nested too deep", ErrLimit)
	}

	if n.Anchor != "" && n.Kind != yaml.AliasNode {
		if line, dup := seen[n.Anchor]; dup {
			return faultAt(n, "duplicate anchor %q, first on line %d", n.Anchor, line)
		}
		seen[n.Anchor] = n.Line
	}

	for _, s := range n.Content {
		if err := c.anchors(s, seen, depth+1); err != nil {
			return err
		}
	}

	return nil
}

func resolved(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// spendNodes charges n values to the budget, and returns an error when it is used up.
func (c *constructor) spendNodes(at *yaml.Node, n int) error {
	if c.nodes -= n; c.nodes < 0 {
		return faultAt(at, "%w: more than %d values, aliases expanded", ErrLimit, c.limits.Nodes)
	}
	return nil
}

// buildValue returns the value of a node.
func (c *constructor) buildValue(n *yaml.Node) (any, error) {
	n = resolved(n)
	if err := c.spendNodes(n, 1); err != nil {
		return nil, err
	}

	tag := tagOf(n)
	switch tag {
	case tagNull, tagBool, tagInt, tagFloat, tagStr, tagUnicode, tagBinary, tagTimestamp:
		text, err := c.scalar(n)
		if err != nil {
			return nil, err
		}

		v, err := scalarValue(tag, text)
		if err != nil {
			return nil, faultAt(n, "%w", err)
		}

		return v, nil
	case tagSeq, tagMap, tagSet, tagOmap, tagPairs:
	default:
		return nil, faultAt(n, "could not determine a constructor for the tag %q", longTag(tag))
	}

	if c.open[n] {
		return nil, faultAt(n, "an alias contains itself")
	}

	c.depth++
	if c.depth > c.limits.Depth {
		return nil, faultAt(n, "%w: nested too deep", ErrLimit)
	}

	c.open[n] = true
	defer func() { delete(c.open, n); c.depth-- }()
	switch tag {
	case tagSeq:
		return c.sequence(n)
	case tagMap:
		return c.mapping(n)
	case tagSet:
		return c.buildSet(n)
	default:
		return c.buildPairs(n, tag)
	}
}

// scalar returns the text of a scalar, or, for a map, the text of its value under the key "=".
func (c *constructor) scalar(n *yaml.Node) (string, error) {
	for hops := 0; n.Kind == yaml.MappingNode && hops < c.limits.Depth; hops++ {
		var def *yaml.Node
		for i := 0; i+1 < len(n.Content); i += 2 {
			if tagOf(resolved(n.Content[i])) == tagValue {
				def = resolved(n.Content[i+1])
				break
			}
		}

		if def == nil {
			break
		}

		n = def
	}

	if n.Kind != yaml.ScalarNode {
		return "", faultAt(n, "expected a scalar, but found a %s", kindName(n))
	}

	return n.Value, nil
}

func (c *constructor) sequence(n *yaml.Node) (any, error) {
	if n.Kind != yaml.SequenceNode {
		return nil, faultAt(n, "expected a sequence, but found a %s", kindName(n))
	}
	l := make([]any, 0, len(n.Content))
	for _, s := range n.Content {
		v, err := c.buildValue(s)
		if err != nil {
			return nil, err
		}
		l = append(l, v)
	}
	return l, nil
}

func (c *constructor) mapping(n *yaml.Node) (*value.Map, error) {
	if n.Kind != yaml.MappingNode {
		return nil, faultAt(n, "expected a mapping, but found a %s", kindName(n))
	}

	pairs, err := c.flatten(n)
	if err != nil {
		return nil, err
	}

	m := &value.Map{}
	seen := make(map[any]struct{}, len(pairs))
	for _, p := range pairs {
		k, err := c.buildKey(p.key)
		if err != nil {
			return nil, err
		}

		v, err := c.buildValue(p.val)
		if err != nil {
			return nil, err
		}

		id := identity(k)
		if _, dup := seen[id]; dup {
			return nil, faultAt(p.key, "found conflicting ID '%v'", k)
		}

		seen[id] = struct{}{}
		m.Set(k, v)
	}

	return m, nil
}

// buildKey returns the value of a map key. It converts bytes, and integers that need more than 64
// bits, to text.
func (c *constructor) buildKey(n *yaml.Node) (any, error) {
	if r := resolved(n); tagOf(r) == tagValue {
		return r.Value, c.spendNodes(r, 1)
	}

	k, err := c.buildValue(n)
	if err != nil {
		return nil, err
	}

	switch k := k.(type) {
	case []byte:
		return string(k), nil
	case *big.Int:
		return k.String(), nil
	case float64:
		if math.IsNaN(k) {
			return nil, faultAt(n, "not-a-number cannot be a key")
		}
	case []any:
		return nil, faultAt(n, "found unacceptable key: a list cannot be a key")
	case *value.Map:
		return nil, faultAt(n, "found unacceptable key: a mapping cannot be a key (double curly braces?)")
	}

	return k, nil
}

// identity returns one value for all keys that Python treats as equal, such as 1, 1.0 and true.
func identity(k any) any {
	switch k := k.(type) {
	case bool:
		if k {
			return int64(1)
		}
		return int64(0)
	case float64:
		if k == math.Trunc(k) && math.Abs(k) < 1<<53 {
			return int64(k)
		}
	}
	return k
}

// flatten returns the pairs of a mapping and of its merge keys. Merged pairs come first, except
// those whose key the mapping itself has. If two merged mappings have the same key, flatten returns
// an error about a duplicate key, as Salt does.
func (c *constructor) flatten(n *yaml.Node) ([]pair, error) {
	if done, ok := c.merged[n]; ok {
		if done == nil {
			return nil, faultAt(n, "a merge key contains itself")
		}
		return done, nil
	}

	c.merged[n] = nil
	own := make([]pair, 0, len(n.Content)/2)
	var merge []pair
	for i := 0; i+1 < len(n.Content); i += 2 {
		p := pair{resolved(n.Content[i]), resolved(n.Content[i+1])}
		if tagOf(p.key) != tagMerge {
			own = append(own, p)
			continue
		}

		more, err := c.mergeValue(p.val)
		if err != nil {
			return nil, err
		}

		merge = append(merge, more...)
	}

	if len(merge) > 0 {
		has := make(map[string]bool, len(own))
		for _, p := range own {
			if p.key.Kind == yaml.ScalarNode {
				has[p.key.Value] = true
			}
		}

		all := make([]pair, 0, len(merge)+len(own))
		for _, p := range merge {
			if p.key.Kind != yaml.ScalarNode || !has[p.key.Value] {
				all = append(all, p)
			}
		}

		own = append(all, own...)
	}

	c.merged[n] = own
	return own, nil
}

func (c *constructor) mergeValue(v *yaml.Node) ([]pair, error) {
	switch v.Kind {
	case yaml.MappingNode:
		ps, err := c.flatten(v)
		if err != nil {
			return nil, err
		}
		return ps, c.spendNodes(v, len(ps))
	case yaml.SequenceNode:
		var out []pair
		for i := len(v.Content) - 1; i >= 0; i-- {
			s := resolved(v.Content[i])
			if s.Kind != yaml.MappingNode {
				return nil, faultAt(s, "expected a mapping for merging, but found a %s", kindName(s))
			}

			ps, err := c.flatten(s)
			if err != nil {
				return nil, err
			}

			if err := c.spendNodes(s, len(ps)+1); err != nil {
				return nil, err
			}

			out = append(out, ps...)
		}

		return out, nil
	}

	return nil, faultAt(v, "expected a mapping or list of mappings for merging, but found a %s", kindName(v))
}

func (c *constructor) buildSet(n *yaml.Node) (any, error) {
	m, err := c.mapping(n)
	if err != nil {
		return nil, err
	}
	l := make([]any, 0, m.Len())
	for k := range m.All() {
		l = append(l, k)
	}
	return l, nil
}

// buildPairs returns the value of !!omap and !!pairs: a list whose elements are lists of key and
// value.
func (c *constructor) buildPairs(n *yaml.Node, tag string) (any, error) {
	if n.Kind != yaml.SequenceNode {
		return nil, faultAt(n, "expected a sequence for %s, but found a %s", tag, kindName(n))
	}

	l := make([]any, 0, len(n.Content))
	for _, s := range n.Content {
		s = resolved(s)
		if s.Kind != yaml.MappingNode || len(s.Content) != 2 {
			return nil, faultAt(s, "expected a mapping of length 1 for %s", tag)
		}

		k, err := c.buildValue(s.Content[0])
		if err != nil {
			return nil, err
		}

		v, err := c.buildValue(s.Content[1])
		if err != nil {
			return nil, err
		}

		l = append(l, []any{k, v})
	}

	return l, nil
}

// tagOf returns the tag of a node by Salt's rules, which may differ from the parser's.
func tagOf(n *yaml.Node) string {
	if n.Style&yaml.TaggedStyle != 0 {
		return n.Tag
	}
	switch n.Kind {
	case yaml.SequenceNode:
		return tagSeq
	case yaml.MappingNode:
		return tagMap
	}
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return tagStr
	}
	return plainTag(n.Value)
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.ScalarNode:
		return "scalar"
	case yaml.SequenceNode:
		return "sequence"
	case yaml.MappingNode:
		return "mapping"
	}
	return "node"
}

func longTag(t string) string {
	if s, ok := strings.CutPrefix(t, "!!"); ok {
		return "tag:yaml.org,2002:" + s
	}
	return t
}
