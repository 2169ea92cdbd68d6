package summary

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/internal/printable"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// Of summarises a return that is decoded already. It leaves Revision empty. It sets Test only if a
// state would change something: for other runs, only the arguments of the job show it.
func Of(function string, ret any, retcode int, success bool) Summary {
	content, err := msgpack.Marshal(value.NewMap(
		"return", ret,
		"retcode", int64(retcode),
		"success", success,
	), msgpack.Modern)
	if err != nil {
		return unreadable(function, err)
	}
	return OfPacked(function, content)
}

// RevisionField is a field of return.p, beside the return. In it the master that took the return
// tells all masters which revision of the files it had served the minion.
const RevisionField = "saltern_revision"

// OfPacked summarises the content of a job cache's file return.p: a map with those of the fields
// return, retcode and success that the minion sent, and perhaps RevisionField. It decodes only what the summary keeps.
func OfPacked(function string, content []byte) Summary {
	f := newFolder(function)
	if err := f.readContent(msgpack.NewReader(content, msgpack.DefaultLimits)); err != nil {
		return unreadable(function, err)
	}
	return f.finish(function)
}

func unreadable(function string, err error) Summary {
	return Summary{
		Function:     cleanText(function),
		Result:       Error,
		FailedStates: []State{{Comment: cleanText("the return cannot be read: " + err.Error())}},
	}
}

// trimmed begins the text that a master keeps instead of a return that is too large or over a quota. Only
// its return code tells of such a run.
const trimmed = "VALUE_TRIMMED"

// stateRuns are the functions of Salt's state module that run states (salt/modules/state.py).
var stateRuns = []string{
	"state.apply", "state.highstate", "state.sls", "state.sls_id", "state.single", "state.top", "state.low",
	"state.high", "state.template", "state.template_str", "state.pkg", "state.run_request",
}

// RunsStates reports whether a function, or one of several with commas between them, runs states.
func RunsStates(function string) bool {
	for f := range strings.SplitSeq(function, ",") {
		if slices.Contains(stateRuns, strings.TrimSpace(f)) {
			return true
		}
	}
	return false
}

// packedState is a state with its packed fields. The fields may be nil.
type packedState struct {
	tag, id, name, sls []byte
	comment, changes   []byte
	duration           time.Duration
}

// folder collects the parts of a summary from a packed return.
type folder struct {
	stateRun  bool
	functions []string // if there are several
	found     bool     // the return has states
	refused   bool     // retcode or success report a failure
	texts     []string // of one function, or of those of several that run states
	answers   []functionAnswer
	failures  []string // those of several functions that failed
	sum       Summary

	failed, changed, slowest []packedState
}

func newFolder(function string) folder {
	return folder{
		stateRun:  RunsStates(function),
		functions: splitFunctions(function),
	}
}

func (f *folder) readContent(r *msgpack.Reader) error {
	n, err := r.Map()
	if err != nil {
		return err
	}

	for range n {
		key, err := readText(r)
		if err != nil {
			return err
		}

		if string(key) == "return" {
			if err := f.readReturn(r); err != nil {
				return err
			}
			continue
		}

		packed, err := r.Value()
		if err != nil {
			return err
		}

		switch string(key) {
		case RevisionField:
			text, _ := msgpack.Contents(packed)
			f.sum.Revision = cleanText(string(text[:min(len(text), MaxText)]))
		case "retcode":
			f.noteRetcode(packed)
		case "success":
			f.noteSuccess(packed)
		}
	}

	return nil
}

func (f *folder) readReturn(r *msgpack.Reader) error {
	several := f.functions != nil
	switch {
	case r.AtMap() && several:
		return f.readAnswers(r)
	case r.AtList() && several:
		return f.readOrdered(r)
	case r.AtMap():
		return f.readMap(r, 0)
	case r.AtList():
		return f.readErrors(r)
	}

	packed, err := r.Value()
	if text, ok := msgpack.Contents(packed); ok {
		f.texts = append(f.texts, cleanText(firstLine(text)))
	}
	return err
}

// readAnswers reads a map by function.
func (f *folder) readAnswers(r *msgpack.Reader) error {
	n, err := r.Map()
	if err != nil {
		return err
	}

	for range n {
		name, err := readText(r)
		if err != nil {
			return err
		}
		if err := f.readAnswer(r, string(name)); err != nil {
			return err
		}
	}
	return nil
}

// readOrdered reads the list of what several functions returned, in their order.
func (f *folder) readOrdered(r *msgpack.Reader) error {
	n, err := r.List()
	if err != nil {
		return err
	}

	for i := range n {
		if err := f.readAnswer(r, f.nameOf(i)); err != nil {
			return err
		}
	}
	return nil
}

// readAnswer reads what one of several functions returned.
func (f *folder) readAnswer(r *msgpack.Reader, name string) error {
	switch {
	case r.AtMap():
		return f.readMap(r, maxNesting)
	case r.AtList() && RunsStates(name):
		before := len(f.texts)
		err := f.readErrors(r)
		f.noteErrors(name, before)
		return err
	}

	packed, err := r.Value()
	if text, ok := msgpack.Contents(packed); ok {
		f.addAnswer(name, cleanText(firstLine(text)))
	}
	return err
}

// maxNesting is how many maps may be around the states of one function: salt-call --local returns a map by minion.
const maxNesting = 1

// readMap reads the states of a map. Maps inside it are searched for states only in the return of a
// state run: other functions, such as publish.publish, return what other minions did.
func (f *folder) readMap(r *msgpack.Reader, nesting int) error {
	n, err := r.Map()
	if err != nil {
		return err
	}

	for range n {
		key, err := r.Value()
		if err != nil {
			return err
		}

		tag, _ := msgpack.Contents(key)
		switch isTag := bytes.Count(tag, separator) >= 3; {
		case isTag && r.AtMap():
			err = f.readState(r, tag)
		case f.stateRun && nesting < maxNesting && r.AtMap():
			err = f.readMap(r, nesting+1)
		case f.stateRun && nesting < maxNesting && r.AtList():
			err = f.readErrors(r)
		default:
			_, err = r.Value()
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// readErrors reads the list of errors that a state run returns when it has no states.
func (f *folder) readErrors(r *msgpack.Reader) error {
	n, err := r.List()
	if err != nil {
		return err
	}

	for range n {
		packed, err := r.Value()
		if err != nil {
			return err
		}
		if text, ok := msgpack.Contents(packed); ok && len(f.texts) < MaxStates {
			f.texts = append(f.texts, cleanText(firstLine(text)))
		}
	}

	return nil
}

func (f *folder) readState(r *msgpack.Reader, tag []byte) error {
	n, err := r.Map()
	if err != nil {
		return err
	}

	state := packedState{tag: tag}
	var result []byte
	for range n {
		key, err := r.Value()
		if err != nil {
			return err
		}
		field, err := r.Value()
		if err != nil {
			return err
		}

		name, _ := msgpack.Contents(key)
		switch string(name) {
		case "result":
			result = field
		case "changes":
			state.changes = field
		case "comment":
			state.comment = field
		case "duration":
			state.duration = durationOf(field)
		case "__id__":
			state.id = field
		case "__sls__":
			state.sls = field
		case "name":
			state.name = field
		}
	}

	if result != nil {
		f.add(&state, result)
	}
	return nil
}

// add counts a state (salt/output/highstate.py _format_host): its result is false when it failed,
// and None when it would change something.
func (f *folder) add(state *packedState, result []byte) {
	f.found = true
	f.sum.Duration = time.Duration(saturatingAdd(int64(f.sum.Duration), int64(state.duration)))
	f.addSlow(state)

	switch {
	case bytes.Equal(result, packedFalse):
		f.sum.Failed++
		f.failed = appendBounded(f.failed, state)
	case bytes.Equal(result, packedNil):
		f.sum.WouldChange++
		f.changed = appendBounded(f.changed, state)
	case truth(state.changes):
		f.sum.Changed++
		f.changed = appendBounded(f.changed, state)
	default:
		f.sum.OK++
	}
}

func appendBounded(list []packedState, state *packedState) []packedState {
	if len(list) < MaxStates {
		list = append(list, *state)
	}
	return list
}

func (f *folder) addSlow(state *packedState) {
	full := len(f.slowest) == MaxSlowest
	if state.duration <= 0 || full && f.slowest[MaxSlowest-1].duration >= state.duration {
		return
	}
	if full {
		f.slowest = f.slowest[:MaxSlowest-1]
	}

	at, _ := slices.BinarySearchFunc(f.slowest, state.duration, func(s packedState, d time.Duration) int {
		return cmp.Or(cmp.Compare(d, s.duration), -1) // behind those of the same duration
	})
	f.slowest = slices.Insert(f.slowest, at, *state)
}

func (f *folder) finish(function string) Summary {
	s := f.sum
	s.Function = cleanText(function)
	s.Test = s.WouldChange > 0
	s.FailedStates = f.states(f.failed, true)
	s.ChangedStates = f.states(f.changed, true)
	s.Slowest = f.states(f.slowest, false)

	s.Result = f.result()

	if lines := f.failedFunctions(); len(lines) > 0 {
		s.FailedStates = append(s.FailedStates, lines[:min(len(lines), MaxStates-len(s.FailedStates))]...)
	}
	if s.Result >= Failed && len(s.FailedStates) == 0 {
		for _, text := range f.texts {
			s.FailedStates = append(s.FailedStates, State{Comment: text})
		}
	}
	return s
}

// result returns the outcome of what was counted.
func (f *folder) result() Result {
	errorsOnly := f.stateRun && !f.found && len(f.texts) > 0 && !strings.HasPrefix(f.texts[0], trimmed)
	switch {
	case errorsOnly:
		return Error
	case f.sum.Failed > 0 || f.refused:
		return Failed
	case f.sum.WouldChange > 0:
		return WouldChange
	case f.sum.Changed > 0:
		return Changed
	}
	return OK
}

func (f *folder) states(list []packedState, whole bool) []State {
	var out []State
	for i := range list {
		out = append(out, list[i].state(whole))
	}
	return out
}

func readText(r *msgpack.Reader) ([]byte, error) {
	packed, err := r.Value()
	text, _ := msgpack.Contents(packed)
	return text, err
}

// durationOf returns the duration of a state, which Salt sends as milliseconds. Versions before
// 2017 sent text such as "1.2 ms".
func durationOf(packed []byte) time.Duration {
	var millis float64
	if len(packed) == 9 && packed[0] == 0xcb { // a float64, as of almost all states
		millis = math.Float64frombits(binary.BigEndian.Uint64(packed[1:]))
	} else {
		v, err := msgpack.Decode(packed, smallLimits)
		if err != nil {
			return 0
		}
		millis = millisOf(v)
	}

	const longest = float64(365 * 24 * time.Hour)
	nanos := millis * float64(time.Millisecond)
	if !(nanos > 0) { // also for NaN
		return 0
	}
	return time.Duration(min(nanos, longest))
}

func millisOf(v any) (millis float64) {
	switch v := v.(type) {
	case float64:
		millis = v
	case int64:
		millis = float64(v)
	case string:
		millis, _ = strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(v, "ms")), 64)
	}
	return millis
}

func saturatingAdd(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func firstLine(text []byte) string {
	text = bytes.TrimSpace(text[:min(len(text), 8*MaxText)])
	line, _, _ := bytes.Cut(text, []byte{'\n'})
	return string(line)
}

// cleanText returns text as one line of at most MaxText bytes.
func cleanText(s string) string {
	if isPlain(s) {
		return s
	}

	const mark = len("…")
	s = printable.Brief(s[:min(len(s), 8*MaxText)], MaxText)
	if len(s) > MaxText {
		s = printable.Clip(strings.TrimSuffix(s, "…"), MaxText-mark)
	}
	return s
}

// isPlain reports whether a text stays as it is: printable ASCII within the bound, without two blanks in
// a row or around it. Almost all names are such, and cleaning would cost more than the rest of a state.
func isPlain(s string) bool {
	if len(s) > MaxText {
		return false
	}

	blank := true
	for i := range len(s) {
		c := s[i]
		if c < ' ' || c >= 0x7f || c == ' ' && blank {
			return false
		}
		blank = c == ' '
	}
	return s == "" || !blank
}
