package local

import (
	"strings"
	"testing"

	"saltern/internal/audit"
	"saltern/master/internal/batch"
	"saltern/master/internal/source"
	"saltern/master/value"
	"saltern/test/check"
)

// TestBatchWhileOthersAsk: a batch that is refused because too many others ask their minions may be
// tried again, which its answer says.
func TestBatchWhileOthersAsk(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var err error
	for err == nil {
		_, err = d.service.slots.Take(t.Context(), "", false)
	}

	spec, err := batch.ReadSpec(value.NewMap("size", "1"))
	check.Must(t, err)
	answer := d.ask(batch.Command, "fun", "test.ping", "arg", []any{}, "tgt", "web1", "tgt_type", "glob", "ret", "",
		"jid", "", "kwargs", login("alice"), batch.Field, spec.Map()).(*value.Map)
	message := answer.Map("error").Str("message")
	if !answer.Bool(source.BusyField) || !strings.Contains(message, "nothing was run; try again later") {
		t.Errorf("answer: %s", value.Repr(answer))
	}
	if r := d.record(1, "job.publish"); r.Result != audit.Refused || len(d.published) > 0 {
		t.Errorf("record: %+v, published %d", r, len(d.published))
	}
}
