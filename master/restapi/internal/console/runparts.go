package console

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"saltern/master/internal/batch"
	"saltern/master/value"
)

// parts says how a job gets to a part of its minions at a time. Its texts are as the form has them.
type parts struct {
	Batch    string // number of minions at a time or a percentage; "": all at once
	Wait     string // seconds that a minion occupies its place after its return; "": none
	Timeout  string // seconds that a minion may take; "": 30 minutes
	Failhard bool   // stop after the first minion that fails
}

func partsOf(get func(string) string) parts {
	text := func(name string) string { return strings.TrimSpace(cutText(get(name), 20)) }
	return parts{
		Batch:    text("batch"),
		Wait:     text("batch_wait"),
		Timeout:  text("timeout"),
		Failhard: get("failhard") != "",
	}
}

// Open reports whether the form shows these fields at once.
func (p parts) Open() bool { return p != parts{} }

// problem returns what is wrong with the fields, or "".
func (p parts) problem() string {
	if p.Batch == "" {
		if p.Open() {
			return "Say how many minions get the job at a time: the other fields of a batch need that."
		}
		return ""
	}

	m := value.NewMap("size", p.Batch)
	for name, text := range map[string]string{"wait": p.Wait, "timeout": p.Timeout} {
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return "The times of a batch are whole numbers of seconds."
		}
		m.Set(name, n)
	}
	if _, err := batch.ReadSpec(m); err != nil {
		return capital(err.Error()) + "."
	}
	return ""
}

// fields returns the fields of the job as pairs of name and value.
func (p parts) fields() (fields []any) {
	if p.Batch == "" {
		return nil
	}
	fields = []any{"batch", p.Batch, "failhard", p.Failhard}
	if p.Wait != "" {
		fields = append(fields, "batch_wait", p.Wait)
	}
	if p.Timeout != "" {
		fields = append(fields, "timeout", p.Timeout)
	}
	return fields
}

// fillQuery adds the fields that are not empty to the query of the form.
func (p parts) fillQuery(q url.Values) {
	for name, text := range map[string]string{"batch": p.Batch, "batch_wait": p.Wait, "timeout": p.Timeout} {
		if text != "" {
			q.Set(name, text)
		}
	}
	if p.Failhard {
		q.Set("failhard", "1")
	}
}

// batchProgress is how far the batch of a job is.
type batchProgress struct {
	All, Size, Begun int
	// Known means that the master of this page runs the batch, or has run it: only it knows the
	// following fields.
	Known   bool
	Pending int    // minions that will get the job later
	Absent  int    // minions that did not answer a ping, and get no job
	Halted  string // why it was stopped, or ""
}

// batchOf returns how far the batch of a job is, or nil for a job without one. m is the job as
// jobs.list_job describes it.
func batchOf(m *value.Map) *batchProgress {
	of := m.Map("Batch")
	if of == nil {
		return nil
	}
	number := func(name string) int {
		n, _ := of.Int(name)
		return int(n)
	}
	p := &batchProgress{
		All:    number("minions"),
		Size:   number("size"),
		Begun:  len(m.Texts("Minions")),
		Halted: briefName(of.Str("halted")),
	}
	if _, p.Known = of.Get("pending"); p.Known {
		p.Pending = number("pending")
		p.Absent = max(p.All-p.Begun-p.Pending, 0)
	}
	return p
}

// GoesOn reports whether further minions may get the job.
func (p *batchProgress) GoesOn() bool {
	if p == nil {
		return false
	}
	if p.Known {
		return p.Halted == "" && p.Pending > 0
	}
	return p.Begun < p.All
}

// goesOnFor reports whether a page should wait for further minions: of a batch that another master runs
// for an hour, as for returns.
func (p *batchProgress) goesOnFor(age time.Duration) bool {
	return p.GoesOn() && (p.Known || age < liveFor)
}
