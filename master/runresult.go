package master

import (
	"context"
	"strings"

	"saltern/master/jobs"
	"saltern/master/msgpack"
	"saltern/master/request"
)

// onRunnerResult gives whole what a runner returned, to the user who started it.
// Tools ask when the event of its end was trimmed to max_event_size; Salt's
// salt-run calls runners in its own process and knows no such bound. The answer
// has no "return" when the result is not kept, or is somebody else's.
func (m *Master) onRunnerResult(ctx context.Context, c *request.Call) (any, error) {
	none, jid := msgpack.NewMap(), c.Load.Str("jid")
	caller, refusal := m.caller(ctx, c.Load)
	if refusal != nil {
		return refusal, nil
	}
	user := strings.TrimPrefix(caller.Name, "sudo_")
	if user == "" || !jobs.Valid(jid) {
		return none, nil
	}
	rets, err := m.jobs.Returns(ctx, jid)
	if err != nil {
		return none, err
	}
	data := rets.Map(m.cfg.ID).Map("return")
	if data.Str("user") != user || !strings.HasPrefix(data.Str("fun"), "runner.") {
		return none, nil
	}
	ret, _ := data.Get("return")
	return msgpack.NewMap("return", ret), nil
}
