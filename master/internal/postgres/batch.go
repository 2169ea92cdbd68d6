package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"saltern/internal/printable"
	"saltern/master/history/summary"
	"saltern/master/jobs"
)

// batch holds the rows of one transaction.
type batch struct {
	loads  [][]any // columns of loadColumns
	runs   [][]any // columns of runColumns
	states [][]any // columns of stateColumns
	events [][]any // columns of eventColumns
	marked int     // records that are written with a mark, or changed
}

// Columns of the temporary tables.
var (
	loadColumns = []string{"jid", "load"}
	runColumns  = []string{"jid", "minion", "time", "user_name", "function", "result", "ok", "changed",
		"would_change", "failed", "seconds", "retcode", "test", "revision", "summary", "adapted", "node",
		"success", "ret", "envelope"}
	stateColumns = []string{"jid", "minion", "kind", "number", "id", "sls", "name", "function", "comment",
		"changes", "cause", "seconds"}
	eventColumns = []string{"place", "writer", "number", "time", "tag", "data", "master"}
)

// newBatch converts records into rows. Of returns of the same job and minion it takes the first. node is the name of
// this machine. reason may be empty; otherwise the records are written without
// their content, which the database has refused for this reason.
func newBatch(records []record, node, reason string) *batch {
	b := &batch{}
	seen := map[recordKey]bool{}
	for i := range records {
		r := &records[i]
		switch r.kind {
		case kindReturn:
			if seen[r.key()] {
				continue
			}
			seen[r.key()] = true
			b.addReturn(r, node, reason)
		case kindEvent:
			b.addEvent(r, reason)
		default:
			b.addLoad(r, reason)
		}
	}
	return b
}

// notStored is the value that stands for content that the database does not take.
func notStored(reason string) []byte {
	text, err := jobs.JSONOf(reason)
	if err != nil {
		text.Text = []byte(`""`)
	}
	return fmt.Appendf(nil, `{"saltern_not_stored":%s}`, text.Text)
}

func (b *batch) addLoad(r *record, reason string) {
	load := r.content
	if len(load) == 0 && reason == "" {
		reason = errOversized.Error()
	}
	if reason != "" {
		load = notStored(reason)
		b.marked++
	}
	b.loads = append(b.loads, []any{r.jid, load})
}

func (b *batch) addEvent(r *record, reason string) {
	data, err := jobs.PackedJSON(r.content)
	if err != nil && reason == "" {
		reason = printable.Brief(err.Error(), maxError)
	}
	if reason != "" {
		data.Text = notStored(reason)
	}

	tag := clipRunes(cleanLines(r.tag), maxTag)
	if reason != "" || len(data.Adapted) > 0 || tag != r.tag {
		b.marked++
	}
	b.events = append(b.events, []any{
		int64(len(b.events)), r.writer, int64(r.number), r.time, tag, data.Text, clipRunes(cleanLines(r.master), maxTag),
	})
}

// maxTag is the length of the columns tag and master_id of salt_events, in characters.
const maxTag = 255

// clipRunes returns the first characters of a text.
func clipRunes(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most])
}

var errOversized = errors.New("it was too large for the spool")

func (b *batch) addReturn(r *record, node, reason string) {
	content, err := jobs.ReturnToJSON(r.content, nilIfEmpty(r.out))
	switch {
	case len(r.content) == 0 && reason == "":
		reason = errOversized.Error()
	case err != nil && reason == "":
		reason = printable.Brief(err.Error(), maxError)
	}
	if reason != "" {
		content.Fields = nil
		content.Return = jobs.JSON{Text: notStored(reason), Adapted: append(content.Return.Adapted, "not stored")}
	}

	s, err := summary.Parse(r.summary)
	if err != nil {
		content.Return.Adapted = append(content.Return.Adapted, "summary")
	}
	function := r.function
	if utf8.RuneCountInString(function) > maxFun {
		content.Return.Adapted = append(content.Return.Adapted, "fun")
	}
	if len(content.Return.Adapted) > 0 {
		b.marked++
	}

	b.runs = append(b.runs, []any{
		r.jid, r.minion, r.time, r.user, function, s.Result.String(),
		int64(s.OK), int64(s.Changed), int64(s.WouldChange), int64(s.Failed),
		s.Duration.Seconds(), int64(s.Retcode), s.Test, cleanText(s.Revision),
		append([]byte{}, r.summary...), nonNil(content.Return.Adapted), node,
		strconv.FormatBool(content.Success), content.Return.Text, envelope(r, &content),
	})
	b.addStates(r, "failed", s.FailedStates)
	b.addStates(r, "changed", s.ChangedStates)
	b.addStates(r, "slow", s.Slowest)
}

// maxFun is the length of the column fun of salt_returns, in characters.
const maxFun = 50

// envelope returns the whole load of the return as JSON, but for the field return, as Salt's master passes
// it to its returners (salt/master.py _return).
func envelope(r *record, content *jobs.ReturnJSON) string {
	quoted := func(s string) []byte {
		v, err := jobs.JSONOf(s)
		if err != nil {
			return []byte(`""`)
		}
		return v.Text
	}
	arguments := r.arguments
	if len(arguments) == 0 {
		arguments = []byte("[]")
	}
	stamp := r.time.UTC().Format("2006-01-02T15:04:05.000000")
	return fmt.Sprintf(`{"cmd":"_return","id":%s,"jid":%s,"fun":%s,"fun_args":%s,"_stamp":"%s"%s}`,
		quoted(r.minion), quoted(r.jid), quoted(r.function), arguments, stamp, content.Fields)
}

func (b *batch) addStates(r *record, kind string, states []summary.State) {
	for i, s := range states {
		if kind != "slow" && i >= summary.MaxStates {
			break
		}
		row := []any{r.jid, r.minion, kind, int16(i)}
		for _, text := range []string{s.ID, s.SLS, s.Name, s.Function, s.Comment, s.Changes, s.Cause.String()} {
			row = append(row, cleanLines(text))
		}
		b.states = append(b.states, append(row, s.Duration.Seconds()))
	}
}

// cleanLines returns a text of several lines for a column of text.
func cleanLines(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "␀"), "?")
}

func nonNil(words []string) []string {
	slices.Sort(words)
	return append([]string{}, words...)
}

func nilIfEmpty(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
