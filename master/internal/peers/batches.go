package peers

import (
	"context"
	"fmt"
	"strings"

	"saltern/master/event"
	"saltern/master/runner"
	"saltern/master/value"
)

// maxBatchTarget bounds the target of a batch in an answer to another master, in bytes.
const maxBatchTarget = 64 << 10

// What a master asks others to do with a batch: the field do of a question.
const (
	showBatch = "status"
	stopBatch = "stop"
)

// Batches passes questions about batches, and orders to stop them, to the master that runs them. A
// batch that is stopped twice is stopped once. It is safe for concurrent use.
type Batches struct {
	inquiry
	own runner.Batches
}

// NewBatches returns Batches. own are those of this master. The caller must call Run.
func NewBatches(others Others, own runner.Batches) *Batches {
	b := &Batches{own: own}
	b.inquiry = inquiry{
		Others:    others,
		questions: event.TagBatchAsk,
		answers:   event.TagBatchAnswer,
		order:     event.BatchAsk,
		answer:    b.answer,
		waiting:   map[string]chan *value.Map{},
	}
	return b
}

// answer answers the question of another master.
func (b *Batches) answer(ctx context.Context, question *value.Map) *value.Map {
	jid := question.Str("jid")
	status := b.own.Status(jid)
	if status == nil {
		return value.NewMap("found", false)
	}

	if question.Str("do") != stopBatch {
		if event.Weight(value.NewMap("tgt", status.Value("tgt"))) > maxBatchTarget {
			status.Set("tgt", "too long to be shown by another master: ask "+b.ID)
		}
		return value.NewMap("found", true, "status", status)
	}

	stopped, err := b.own.Stop(ctx, jid)
	reply := value.NewMap("found", true, "stopped", stopped)
	if err != nil {
		b.Log.Error("a batch is not stopped as another master asked", "jid", jid, "error", err)
		reply.Set("error", err.Error())
	} else if stopped {
		b.Log.Info("a batch is stopped as another master asked", "jid", jid)
	}
	return reply
}

// Stop implements runner.BatchesElsewhere.
func (b *Batches) Stop(ctx context.Context, jid, owner string) (bool, error) {
	if owner == b.ID { // the state of the batch is gone
		return false, nil
	}
	o := b.ask(ctx, value.NewMap("do", stopBatch, "jid", jid), owner)
	if o.found != nil {
		if text := o.found.Str("error"); text != "" {
			return false, fmt.Errorf("stop the batch of the job %s on %s: %s", jid, o.found.Str("id"), text)
		}
		return o.found.Bool("stopped"), nil
	}
	return false, unknownBatch(jid, owner, o)
}

// Status implements runner.BatchesElsewhere.
func (b *Batches) Status(ctx context.Context, jid, owner string) (*value.Map, error) {
	if owner == b.ID {
		return nil, nil
	}
	o := b.ask(ctx, value.NewMap("do", showBatch, "jid", jid), owner)
	if o.found != nil {
		return o.found.Map("status"), nil
	}
	return nil, unknownBatch(jid, owner, o)
}

// unknownBatch returns the error for a batch of which no master knows, or nil if all masters have
// answered.
func unknownBatch(jid, owner string, o outcome) error {
	switch {
	case len(o.silent) == 0:
		return nil
	case owner != "":
		return fmt.Errorf("the master %s runs the batch of the job %s and did not answer: ask again. "+
			"If it is down, it goes on with the batch when it runs again", owner, jid)
	}
	return fmt.Errorf("no master that answered runs the batch of the job %s; %s did not answer, and may go on with it: ask again",
		jid, strings.Join(o.silent, ", "))
}
