package summary

import (
	"strings"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// ResultOf returns the result of a return that is decoded already: the one that [OfPacked] finds in the same
// return. ret has those of the fields return, retcode and success that the minion sent. It costs a walk over the
// states.
func ResultOf(function string, ret *value.Map) Result {
	f := newFolder(function)
	f.noteRetcode(packed(ret.Value("retcode")))
	f.noteSuccess(packed(ret.Value("success")))

	if f.functions != nil {
		f.countAnswers(ret.Value("return"))
		return f.result()
	}
	switch content := ret.Value("return").(type) {
	case *value.Map:
		f.countMap(content, 0)
	case []any:
		f.countErrors(content)
	default:
		f.countText(content)
	}
	return f.result()
}

// countAnswers counts the states of several functions, as readAnswers and readOrdered do.
func (f *folder) countAnswers(v any) {
	switch v := v.(type) {
	case *value.Map:
		for key, e := range v.All() {
			name, _ := textIn(key)
			f.countAnswer(name, e)
		}
	case []any:
		for i, e := range v {
			f.countAnswer(f.nameOf(i), e)
		}
	default:
		f.countText(v)
	}
}

func (f *folder) countAnswer(name string, v any) {
	switch v := v.(type) {
	case *value.Map:
		f.countMap(v, maxNesting)
	case []any:
		if RunsStates(name) {
			before := len(f.texts)
			f.countErrors(v)
			f.noteErrors(name, before)
		}
	default:
		if text, ok := textIn(v); ok {
			f.addAnswer(name, lineOf(text))
		}
	}
}

// countMap counts the states of a map, as readMap does.
func (f *folder) countMap(m *value.Map, nesting int) {
	for key, e := range m.All() {
		tag, _ := textIn(key)
		within := f.stateRun && nesting < maxNesting
		switch content := e.(type) {
		case *value.Map:
			if strings.Count(tag, string(separator)) >= 3 {
				f.countState(content)
			} else if within {
				f.countMap(content, nesting+1)
			}
		case []any:
			if within {
				f.countErrors(content)
			}
		}
	}
}

func (f *folder) countState(state *value.Map) {
	result, told := state.Get("result")
	if !told {
		return
	}

	f.found = true
	switch {
	case result == false:
		f.sum.Failed++
	case result == nil:
		f.sum.WouldChange++
	case value.Truth(state.Value("changes")):
		f.sum.Changed++
	}
}

func (f *folder) countErrors(list []any) {
	for _, e := range list {
		f.countText(e)
	}
}

func (f *folder) countText(v any) {
	if text, ok := textIn(v); ok && len(f.texts) < MaxStates {
		f.texts = append(f.texts, lineOf(text))
	}
}

// lineOf returns the first line of a text.
func lineOf(text string) string {
	return cleanText(firstLine([]byte(text[:min(len(text), 8*MaxText)])))
}

// packed returns a small field of a return as minions send it. It returns nil for a value that nobody can send.
func packed(v any) []byte {
	content, err := msgpack.Marshal(v, msgpack.Modern)
	if err != nil {
		return nil
	}
	return content
}

// textIn returns a text of a decoded return, which may be bytes.
func textIn(v any) (text string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	}
	return "", false
}
