package cli

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Bounds of an answer. The largest answer in practice is `heal info` of a volume with many pending
// entries: two elements of about 100 bytes each.
const (
	maxAnswer = 8 << 20 // largest answer, in bytes
	maxNodes  = 200_000
	maxDepth  = 12 // nested elements; real answers have 8
	maxText   = 64 << 10
)

// element is an XML element: its text without the text of its children, one attribute, and its
// children. A brick in `volume info` has text and children.
type element struct {
	name string
	attr string // value of the first attribute
	text string
	kids []*element
}

// parseXML parses a document within the bounds. Clients of the volume choose file names, so
// parseXML replaces bytes that XML forbids instead of refusing the document.
func parseXML(b []byte) (*element, error) {
	if len(b) > maxAnswer {
		return nil, fmt.Errorf("answer of %d bytes is larger than %d", len(b), maxAnswer)
	}

	d := xml.NewDecoder(bytes.NewReader(sanitize(b)))
	var root *element
	var stack []*element
	nodes := 0
	for {
		tok, err := d.RawToken()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("not well-formed: %w", err)
		}

		switch t := tok.(type) {
		case xml.StartElement:
			nodes++
			if nodes > maxNodes {
				return nil, fmt.Errorf("more than %d elements", maxNodes)
			}
			if len(stack) == maxDepth {
				return nil, fmt.Errorf("nested deeper than %d", maxDepth)
			}

			e := &element{name: t.Name.Local}
			if len(t.Attr) > 0 {
				e.attr = t.Attr[0].Value
			}

			if len(stack) > 0 {
				top := stack[len(stack)-1]
				top.kids = append(top.kids, e)
			} else if root != nil {
				return nil, errors.New("more than one document")
			} else {
				root = e
			}

			stack = append(stack, e)
		case xml.EndElement:
			if len(stack) == 0 || stack[len(stack)-1].name != t.Name.Local {
				return nil, fmt.Errorf("</%s> closes nothing", t.Name.Local)
			}
			stack = stack[:len(stack)-1]
		case xml.CharData:
			if len(stack) == 0 {
				if len(bytes.TrimSpace(t)) > 0 {
					return nil, errors.New("text outside of the document")
				}
				continue
			}

			top := stack[len(stack)-1]
			text := strings.TrimSpace(string(t))
			if len(top.text)+len(text) > maxText {
				return nil, fmt.Errorf("text longer than %d bytes", maxText)
			}

			top.text += text
		case xml.Directive:
			return nil, errors.New("directives are not accepted")
		}
	}

	if root == nil || len(stack) > 0 {
		return nil, errors.New("the document is not complete")
	}

	return root, nil
}

// sanitize returns b with all bytes replaced that XML 1.0 does not allow: invalid UTF-8 and control
// characters.
func sanitize(b []byte) []byte {
	if utf8.Valid(b) && bytes.IndexFunc(b, forbidden) < 0 {
		return b
	}
	return bytes.Map(func(r rune) rune {
		if forbidden(r) {
			return utf8.RuneError
		}
		return r
	}, b)
}

func forbidden(r rune) bool {
	return r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF || r == utf8.RuneError
}

// childAt returns the descendant at a path of names; at each level it follows the first child with
// the name. If there is none, it returns nil. e may be nil.
func (e *element) childAt(names ...string) *element {
	for _, n := range names {
		if e == nil {
			return nil
		}

		var next *element
		for _, k := range e.kids {
			if k.name == n {
				next = k
				break
			}
		}

		e = next
	}

	return e
}

func (e *element) children(name string) []*element {
	if e == nil {
		return nil
	}
	var out []*element
	for _, k := range e.kids {
		if k.name == name {
			out = append(out, k)
		}
	}
	return out
}

// textAt returns the text of the descendant at the path names, or "" if there is no such element.
func (e *element) textAt(names ...string) string {
	if k := e.childAt(names...); k != nil {
		return k.text
	}
	return ""
}
