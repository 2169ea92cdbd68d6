package client

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"saltern/master/internal/batch"
	"saltern/master/value"
)

// batchSize returns how many minions run a batch's job at a time. spec is a number of minions or a
// percentage of n. The result is at least 1 (salt/utils/batch_state.py get_batch_size).
func batchSize(spec string, n int) (int, error) {
	bad := &Error{
		Kind: Invocation,
		Message: fmt.Sprintf("Invalid batch specification %s: must be an integer or percentage string like '10' or '25%%'.",
			value.Repr(spec)),
	}

	if strings.Contains(spec, "%") {
		p, err := strconv.ParseFloat(strings.TrimSpace(strings.Trim(spec, "%")), 64)
		if err != nil || math.IsNaN(p) || math.IsInf(p, 0) {
			return 0, bad
		}

		size := p / 100 * float64(n)
		if size < 1 {
			return 1, nil
		}

		return int(min(size, float64(math.MaxInt32))), nil
	}

	size, err := strconv.Atoi(strings.TrimSpace(spec))
	if err != nil {
		return 0, bad
	}

	return max(size, 1), nil
}

// validSize returns a size that batchSize takes, as [batch.SizeOf] takes it and in its bounds.
func validSize(spec string) string {
	text := strings.TrimSpace(strings.Trim(spec, "%"))
	n, err := strconv.ParseFloat(text, 64)
	isPercent := strings.Contains(spec, "%")
	switch {
	case err != nil:
		return spec
	case n <= 0 || !isPercent && n < 1:
		return "1"
	case isPercent && n > 100:
		return "100%"
	case isPercent:
		return text + "%"
	}
	return strconv.Itoa(int(min(n, batch.MaxSize)))
}

// payload returns the data of a batch event. The data contain the state with which the master
// answers batch.status or continues the batch (salt/utils/batch_output.py state_payload). driver is
// "cli" or "master".
func payload(
	driver string,
	b *batch.State,
	all []string,
	q BatchRequest,
	user string,
	created, now time.Time,
) *value.Map {
	state := value.NewMap("jid", q.JID, "all_minions", all, "pending", nil, "active", nil,
		"done", nil, "failed", nil, "wait", nil, "batch_size", b.Size, "fun", q.Fun, "arg", q.Arg,
		"kwargs", value.NewMap(), "tgt", q.Target, "tgt_type", q.TargetType, "failhard", b.Failhard,
		"batch_wait", b.Wait.Seconds(), "timeout", int64(q.Timeout/time.Second), "gather_job_timeout", int64(q.Gather/time.Second),
		"last_progress", nil, "created", float64(created.UnixMicro())/1e6, "halted", false, "halted_reason", nil,
		"driver", driver, "ret", q.Return, "user", user)
	b.Fill(state, now)
	return value.NewMap("jid", q.JID, "fun", q.Fun, "tgt", q.Target, "tgt_type", q.TargetType, "user", user,
		"driver", driver, "state", state)
}
