package console

import (
	"net/url"
	"strconv"
	"strings"

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

// partsAsked returns the parts of a batch as it was asked for (batch.Spec).
func partsAsked(spec *value.Map) parts {
	seconds := func(name string) string {
		text := strings.TrimSuffix(settingText(spec.Value(name)), ".0")
		if text == "0" {
			return ""
		}
		return text
	}
	return parts{
		Batch:    spec.Str("size"),
		Wait:     seconds("wait"),
		Timeout:  seconds("timeout"),
		Failhard: spec.Bool("failhard"),
	}
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
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return "The times of a batch are numbers of seconds."
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
