package summary

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"saltern/internal/printable"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// A job may have several functions. Its load and its returns then hold lists of functions and of arguments, and
// return, retcode and success are maps by function, or lists in the order of the functions with the minion's option
// multifunc_ordered. A function that the minion does not have, or that raises an exception, has no return code, or
// None (salt/minion.py _thread_multi_return).

// functionsSeparator is between the names of several functions.
const functionsSeparator = ","

// Functions returns the functions of a load, an event or a return.
func Functions(load *value.Map) []string {
	switch fun := load.Value("fun").(type) {
	case string:
		if fun != "" {
			return []string{fun}
		}
	case []string:
		return fun
	case []any:
		return load.Texts("fun")
	}
	return nil
}

// FunctionOf returns the function of a load, an event or a return. Several are separated by commas.
func FunctionOf(load *value.Map) string { return strings.Join(Functions(load), functionsSeparator) }

// AnyFunction reports whether ok is true for a function or, if there are several with commas between them, for one
// of them or all in one text.
func AnyFunction(function string, ok func(string) bool) bool {
	if ok(function) {
		return true
	}
	if !strings.Contains(function, functionsSeparator) {
		return false
	}
	for one := range strings.SplitSeq(function, functionsSeparator) {
		if ok(strings.TrimSpace(one)) {
			return true
		}
	}
	return false
}

// AnswerOf returns the part of a job's result that belongs to the i-th of its functions, fun. v is a list in the order
// of the functions or a map by function.
func AnswerOf(v any, fun string, i int) any {
	switch v := v.(type) {
	case []any:
		if i < len(v) {
			return v[i]
		}
	case *value.Map:
		return v.Value(fun)
	}
	return nil
}

// OfReturn summarises a return that is decoded already, or its event.
func OfReturn(load *value.Map) Summary {
	function := FunctionOf(load)
	ret := value.NewMap()
	for _, name := range []string{"return", "retcode", "success", RevisionField} {
		if v, ok := load.Get(name); ok {
			ret.Set(name, v)
		}
	}

	content, err := msgpack.Marshal(ret, msgpack.Modern)
	if err != nil {
		return unreadable(function, err)
	}
	return OfPacked(function, content)
}

// RetcodeOf returns a return code as one number: of several functions the greatest one that is not zero. It returns 0
// for what is no return code.
func RetcodeOf(v any) int64 {
	code := int64(0)
	take := func(v any) {
		one := oneCode(v)
		if code == 0 || one > code && one != 0 {
			code = one
		}
	}

	for _, e := range Answers(v) {
		take(e)
	}
	return code
}

// Answers returns the value of each function in a field of a return: the values of a map by function or the elements of
// a list, otherwise v itself, of the only function.
func Answers(v any) (all []any) {
	switch v := v.(type) {
	case *value.Map:
		for _, e := range v.All() {
			all = append(all, e)
		}
		return all
	case []any:
		return v
	}
	return []any{v}
}

func oneCode(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case int:
		return int64(v)
	case bool: // Python's True is 1
		if v {
			return 1
		}
	}
	return 0
}

// Succeeded reports whether the packed field success of a return is true: of several functions, that of each.
func Succeeded(packed []byte) bool {
	v, err := msgpack.Decode(packed, codesLimits)
	if err != nil {
		return false
	}

	all := Answers(v)
	return len(all) > 0 && !slices.ContainsFunc(all, func(e any) bool { return e != true })
}

// codesLimits bound retcode and success of a job with as many functions as a job may have.
var codesLimits = msgpack.Limits{Depth: 2, Nodes: 4096}

// functionAnswer is what one of several functions returned.
type functionAnswer struct {
	name string
	text string // first line of a text
}

// splitFunctions returns the functions of a job that has several, or nil.
func splitFunctions(function string) (names []string) {
	if !strings.Contains(function, functionsSeparator) {
		return nil
	}
	for one := range strings.SplitSeq(function, functionsSeparator) {
		names = append(names, strings.TrimSpace(one))
	}
	return names
}

// nameOf returns the i-th of several functions. Its name may be cut off: then nameOf returns its number.
func (f *folder) nameOf(i int) string {
	if i < len(f.functions) {
		return f.functions[i]
	}
	return "function " + strconv.Itoa(i+1)
}

// addAnswer notes the text that one of several functions returned.
func (f *folder) addAnswer(name, text string) {
	if len(f.answers) >= maxAnswers {
		return
	}
	f.answers = append(f.answers, functionAnswer{name, text})
	if RunsStates(name) && len(f.texts) < MaxStates {
		f.texts = append(f.texts, text)
	}
}

// noteErrors notes the first of the errors that one of several functions returned. before is how many texts there were
// before them.
func (f *folder) noteErrors(name string, before int) {
	if len(f.texts) > before && len(f.answers) < maxAnswers {
		f.answers = append(f.answers, functionAnswer{name, f.texts[before]})
	}
}

// maxAnswers bounds the texts that are kept until it is known which of the functions failed.
const maxAnswers = 100

// noteRetcode reads the packed field retcode.
func (f *folder) noteRetcode(packed []byte) {
	v, err := msgpack.Decode(packed, codesLimits)
	if err != nil {
		return
	}

	const most = 1<<31 - 1
	f.sum.Retcode = int(max(min(RetcodeOf(v), most), -most-1))
	f.refused = f.refused || f.sum.Retcode != 0
	f.noteFailures(v, func(e any) bool { return oneCode(e) != 0 })
}

// noteSuccess reads the packed field success.
func (f *folder) noteSuccess(packed []byte) {
	v, err := msgpack.Decode(packed, codesLimits)
	if err != nil {
		return
	}
	f.refused = f.refused || v == false
	f.noteFailures(v, func(e any) bool { return e == false })
}

// noteFailures notes which of several functions failed.
func (f *folder) noteFailures(v any, failed func(any) bool) {
	note := func(name string, e any) {
		if !failed(e) {
			return
		}
		f.refused = true
		if f.functions != nil && len(f.failures) < MaxStates {
			f.failures = append(f.failures, name)
		}
	}

	switch v := v.(type) {
	case *value.Map:
		for key, e := range v.All() {
			name, _ := textIn(key)
			note(name, e)
		}
	case []any:
		for i, e := range v {
			note(f.nameOf(i), e)
		}
	}
}

// failedFunctions returns a line about each of several functions that failed, without those whose states tell it.
func (f *folder) failedFunctions() (lines []State) {
	told := map[string]bool{}
	for _, name := range f.failures {
		if told[name] || len(lines) == MaxStates {
			continue
		}
		told[name] = true

		text := ""
		for _, a := range f.answers {
			if a.name == name {
				text = a.text
			}
		}
		if text == "" && f.sum.Failed > 0 && RunsStates(name) {
			continue
		}
		line := printable.Clip(name, MaxText/2) + ": " + cmp.Or(text, "failed")
		lines = append(lines, State{Comment: cleanText(line)})
	}
	return lines
}
