package saltyaml

import (
	"fmt"
	"unicode/utf8"

	"saltern/master/value"
)

// bestWidth is the column after which PyYAML breaks a line at the next space.
const bestWidth = 80

// emitter writes nodes by the rules of libyaml's emitter, which Salt uses: with the same line
// breaks, quotes and indents.
type emitter struct {
	out        []byte
	style      Style
	column     int
	indent     int
	indents    []int
	flow       int  // number of open flow containers
	whitespace bool // the last thing written was white space
	indention  bool // only indentation has been written on this line
}

func (e *emitter) writeText(s string) {
	e.out = append(e.out, s...)
	e.column += utf8.RuneCountInString(s)
}

func (e *emitter) lineBreak() {
	e.out = append(e.out, '\n')
	e.column = 0
}

func (e *emitter) indicator(s string, space, isSpace, isIndention bool) {
	if space && !e.whitespace {
		e.writeText(" ")
	}
	e.writeText(s)
	e.whitespace = isSpace
	e.indention = e.indention && isIndention
}

func (e *emitter) writeIndent() {
	n := max(e.indent, 0)
	if !e.indention || e.column > n || e.column == n && !e.whitespace {
		e.lineBreak()
	}
	for e.column < n {
		e.writeText(" ")
	}
	e.whitespace, e.indention = true, true
}

func (e *emitter) increase(flow, indentless bool) {
	e.indents = append(e.indents, e.indent)
	switch {
	case e.indent < 0 && flow:
		e.indent = e.style.Indent
	case e.indent < 0:
		e.indent = 0
	case !indentless:
		e.indent += e.style.Indent
	}
}

func (e *emitter) decrease() {
	e.indent = e.indents[len(e.indents)-1]
	e.indents = e.indents[:len(e.indents)-1]
}

func (e *emitter) writeNode(v any, at place, depth int) error {
	if depth > maxEncodeDepth {
		return errDepth
	}

	a, ok, err := scalarAtom(v)
	if err != nil {
		return err
	}
	if ok {
		e.scalar(a, at)
		return nil
	}

	switch v := v.(type) {
	case []any, []string:
		return e.writeList(listItems(v), at, depth)
	case *value.Map, map[string]any, map[string]string:
		return e.mapping(itemsOf(v, e.style.KeepKeys), depth)
	}

	return fmt.Errorf("cannot write %T", v)
}

func (e *emitter) writeList(l []any, at place, depth int) error {
	if e.flow > 0 || e.style.Flow || len(l) == 0 {
		e.openFlow("[")
		for i, v := range l {
			e.separate(i)
			if err := e.writeNode(v, place{}, depth+1); err != nil {
				return err
			}
		}

		e.closeFlow("]")
		return nil
	}

	e.increase(false, at.mapping && !e.indention)
	for _, v := range l {
		e.writeIndent()
		e.indicator("-", true, false, true)
		if err := e.writeNode(v, place{}, depth+1); err != nil {
			return err
		}
	}

	e.decrease()
	return nil
}

func (e *emitter) openFlow(s string) {
	e.indicator(s, true, true, false)
	e.increase(true, false)
	e.flow++
}

func (e *emitter) separate(i int) {
	if i > 0 {
		e.indicator(",", false, false, false)
	}
	if e.column > bestWidth {
		e.writeIndent()
	}
}

func (e *emitter) closeFlow(s string) {
	e.flow--
	e.decrease()
	e.indicator(s, false, false, false)
}

func (e *emitter) mapping(l []item, depth int) error {
	inFlow := e.flow > 0 || e.style.Flow || len(l) == 0
	if inFlow {
		e.openFlow("{")
	} else {
		e.increase(false, false)
	}

	for i, it := range l {
		if inFlow {
			e.separate(i)
		} else {
			e.writeIndent()
		}

		if simpleKey(it.key) {
			if err := e.writeNode(it.key, place{mapping: true, simpleKey: true}, depth+1); err != nil {
				return err
			}
			e.indicator(":", false, false, false)
		} else {
			e.indicator("?", true, false, !inFlow)
			if err := e.writeNode(it.key, place{mapping: true}, depth+1); err != nil {
				return err
			}

			if !inFlow || e.column > bestWidth {
				e.writeIndent()
			}

			e.indicator(":", true, false, !inFlow)
		}

		if err := e.writeNode(it.val, place{mapping: true}, depth+1); err != nil {
			return err
		}
	}

	if inFlow {
		e.closeFlow("}")
	} else {
		e.decrease()
	}

	return nil
}

// simpleKey reports whether a key can be written on one line with its colon.
func simpleKey(k any) bool {
	s, ok := k.(string)
	return !ok || len(s) <= 128 && !analyse(s).multiline
}

func (e *emitter) scalar(a atom, at place) {
	t := analyse(a.text)
	if a.tag != "" {
		e.indicator(a.tag, true, false, false)
	}

	e.increase(true, false)
	split := !at.simpleKey
	switch {
	case a.literal && t.block && e.flow == 0 && !at.simpleKey:
		e.literal(a.text)
	case a.literal:
		e.doubleQuoted(a.text, split)
	case a.plain && (e.flow > 0 && t.flowPlain || e.flow == 0 && t.blockPlain) &&
		(a.text != "" || e.flow == 0 && !at.simpleKey) && !(at.simpleKey && t.multiline):
		e.writePlain(a.text, split)
	case t.single && !(at.simpleKey && t.multiline):
		e.singleQuoted(a.text, split)
	default:
		e.doubleQuoted(a.text, split)
	}

	e.decrease()
}
