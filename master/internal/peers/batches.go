package peers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"saltern/master/event"
	"saltern/master/runner"
	"saltern/master/value"
)

const (
	// maxBatchTarget bounds the target of a batch in an answer to another master, in bytes.
	maxBatchTarget = 64 << 10
	// maxListedTarget bounds it in a list of batches.
	maxListedTarget = 512
	// maxBatchList bounds a list of batches in an answer to another master, in bytes. Overflow policy: the
	// others are left out, and the list says how many.
	maxBatchList = 512 << 10
)

// What a master asks others to do with a batch: the field do of a question.
const (
	showBatch = "status"
	stopBatch = "stop"
	listBatch = "list"
)

// shownFor is how long the answer to a question for the status of a batch serves further callers, such
// as many open pages of one job.
const shownFor = time.Second

// Batches passes questions about batches, and orders to stop them, to the master that runs them. A
// batch that is stopped twice is stopped once. It is safe for concurrent use.
type Batches struct {
	inquiry
	own runner.Batches

	shownMu sync.Mutex
	shown   map[shownKey]*shownBatch // questions that wait, and answers not older than shownFor
}

type shownKey struct{ jid, owner string }

// allBatches is the key of the question for the batches that have not ended.
var allBatches = shownKey{}

// shownBatch is the answer to a question for the status of a batch, or for all batches.
type shownBatch struct {
	done  chan struct{} // closed when the other fields are set
	at    time.Time
	given bool // false: the caller has left before the answer

	status *value.Map // nil: there is none
	err    error

	list    []*value.Map
	unknown map[string]error
}

// NewBatches returns Batches. own are those of this master. The caller must call Run.
func NewBatches(others Others, own runner.Batches) *Batches {
	b := &Batches{own: own, shown: map[shownKey]*shownBatch{}}
	stops, shows := newLane(orderWorkers), newLane(showWorkers)
	b.inquiry = inquiry{
		Others:    others,
		questions: event.TagBatchAsk,
		answers:   event.TagBatchAnswer,
		order:     event.BatchAsk,
		answer:    b.answer,
		lane: func(question *value.Map) *lane {
			if question.Str("do") == stopBatch {
				return stops
			}
			return shows
		},
		lanes:   []*lane{stops, shows},
		waiting: map[string]chan *value.Map{},
	}
	return b
}

// answer answers the question of another master.
func (b *Batches) answer(ctx context.Context, question *value.Map) *value.Map {
	if question.Str("do") == stopBatch {
		return b.answerStop(ctx, question)
	}

	if question.Str("do") == listBatch {
		return b.answerList(ctx)
	}

	status, err := b.own.Status(ctx, question.Str("jid"))
	switch {
	case err != nil:
		return b.failure(ctx, question, fmt.Errorf("read the state of the batch: %w", err))
	case status == nil:
		return value.NewMap("found", false)
	}

	b.cutTarget(status, maxBatchTarget)
	return value.NewMap("found", true, "status", status)
}

// cutTarget replaces a long target in the status of a batch.
func (b *Batches) cutTarget(status *value.Map, most int) {
	if event.Weight(value.NewMap("tgt", status.Value("tgt"))) > most {
		status.Set("tgt", "too long to be shown by another master: ask "+b.ID)
	}
}

// answerList lists the batches of this master for another one.
func (b *Batches) answerList(ctx context.Context) *value.Map {
	active, err := b.own.Active(ctx)
	if err != nil {
		return value.NewMap("found", true, "error", err.Error())
	}

	list := []any{}
	weight := 0
	for _, status := range active {
		b.cutTarget(status, maxListedTarget)
		if weight += event.Weight(status); weight > maxBatchList {
			break
		}
		list = append(list, status)
	}
	return value.NewMap("found", true, "batches", list, "left_out", int64(len(active)-len(list)))
}

// answerStop stops a batch for another master.
func (b *Batches) answerStop(ctx context.Context, question *value.Map) *value.Map {
	jid := question.Str("jid")
	stopped, err := b.own.Stop(ctx, jid)
	if err != nil {
		b.Log.Error("a batch is not stopped as another master asked", "jid", jid, "error", err)
		return b.failure(ctx, question, err)
	}
	if stopped {
		b.Log.Info("a batch is stopped as another master asked", "jid", jid)
		return value.NewMap("found", true, "stopped", true)
	}

	status, err := b.own.Status(ctx, jid)
	if err != nil {
		return b.failure(ctx, question, err)
	}
	return value.NewMap("found", status != nil, "stopped", false)
}

// failure returns the answer to a question that this master cannot answer. If all masters were asked, and
// nothing says that this one runs the batch, it returns nil: the one that runs it answers.
func (b *Batches) failure(ctx context.Context, question *value.Map, err error) *value.Map {
	if question.Str("to") == "" {
		if status, _ := b.own.Status(ctx, question.Str("jid")); status == nil {
			return nil
		}
	}
	return value.NewMap("found", true, "stopped", false, "error", err.Error())
}

// Stop implements runner.BatchesElsewhere.
func (b *Batches) Stop(ctx context.Context, jid, owner string) (bool, error) {
	if owner == b.ID { // the state of the batch is gone
		return false, nil
	}

	o := b.ask(ctx, value.NewMap("do", stopBatch, "jid", jid), owner)
	b.shownMu.Lock()
	clear(b.shown) // tell no caller what was true before
	b.shownMu.Unlock()

	if o.found != nil {
		if text := o.found.Str("error"); text != "" {
			return false, fmt.Errorf("stop the batch of the job %s on %s: %s", jid, o.found.Str("id"), text)
		}
		return o.found.Bool("stopped"), nil
	}
	return false, b.unknownBatch(jid, owner, o, "; it is not known whether the batch is stopped")
}

// Status implements runner.BatchesElsewhere. Callers at one time share a question.
func (b *Batches) Status(ctx context.Context, jid, owner string) (*value.Map, error) {
	if owner == b.ID {
		return nil, nil
	}

	s, err := b.share(ctx, shownKey{jid, owner}, func(s *shownBatch) (answered bool) {
		o := b.ask(ctx, value.NewMap("do", showBatch, "jid", jid), owner)
		s.err = b.unknownBatch(jid, owner, o, "")
		if o.found != nil {
			s.status, s.err = o.found.Map("status"), nil
			if text := o.found.Str("error"); text != "" {
				s.err = fmt.Errorf("show the batch of the job %s on %s: %s", jid, o.found.Str("id"), text)
			}
		}
		return o.found != nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for the status of the batch of the job %s: %w", jid, err)
	}
	if s.status == nil {
		return nil, s.err
	}
	return s.status.Clone(), nil
}

// Active implements runner.BatchesElsewhere. Callers at one time share a question.
func (b *Batches) Active(ctx context.Context) (list []*value.Map, unknown map[string]error) {
	s, err := b.share(ctx, allBatches, func(s *shownBatch) (answered bool) {
		s.list, s.unknown = b.askList(ctx)
		return len(s.unknown) == 0
	})
	if err != nil {
		return nil, nil // the caller has left
	}
	for _, status := range s.list {
		list = append(list, status.Clone())
	}
	return list, s.unknown
}

// askList asks all masters for their batches. unknown says, by master, why its batches are not, or not all, in
// the list.
func (b *Batches) askList(ctx context.Context) (list []*value.Map, unknown map[string]error) {
	answers, silent := b.askEach(ctx, value.NewMap("do", listBatch))
	unknown = map[string]error{}
	for _, peer := range silent {
		unknown[peer] = errors.New("the master did not answer, or is of an older version: its batches may go on; ask again when it is back")
	}

	for peer, answer := range answers {
		for _, v := range answer.List("batches") {
			if status, ok := v.(*value.Map); ok {
				list = append(list, status)
			}
		}
		if text := answer.Str("error"); text != "" {
			unknown[peer] = errors.New(text)
		}
		if n, _ := answer.Int("left_out"); n > 0 {
			unknown[peer] = fmt.Errorf("the master has %d more batches: salt-run batch.list_active there lists all", n)
		}
	}
	return list, unknown
}

// share returns the answer with this key. If there is none, and nobody else waits for it, it calls ask, which sets
// the fields of the answer and reports whether it is whole. An answer that is not whole because ctx has ended
// serves nobody else. The error is that of ctx.
func (b *Batches) share(ctx context.Context, key shownKey, ask func(s *shownBatch) (answered bool)) (*shownBatch, error) {
	for {
		s, isNew := b.shownOf(key)
		if isNew {
			answered := ask(s)
			b.keepShown(key, s, answered || ctx.Err() == nil)
		}

		select {
		case <-s.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if s.given || isNew {
			return s, nil
		}
	}
}

// shownOf returns the answer with this key. isNew means that the caller must fill it in and call keepShown.
func (b *Batches) shownOf(key shownKey) (s *shownBatch, isNew bool) {
	b.shownMu.Lock()
	defer b.shownMu.Unlock()

	now := time.Now()
	for other, s := range b.shown {
		if !s.at.IsZero() && now.Sub(s.at) > shownFor {
			delete(b.shown, other)
		}
	}

	if s = b.shown[key]; s != nil {
		return s, false
	}
	s = &shownBatch{done: make(chan struct{})}
	b.shown[key] = s
	return s, true
}

// keepShown lets the answer s serve others, unless its caller has left before it was given.
func (b *Batches) keepShown(key shownKey, s *shownBatch, given bool) {
	b.shownMu.Lock()
	defer b.shownMu.Unlock()
	s.at = time.Now()
	s.given = given
	if !given && b.shown[key] == s {
		delete(b.shown, key)
	}
	close(s.done)
}

// unknownBatch returns the error for a batch of which no master knows, or nil if all masters have
// answered. doubt says what the silence of a master that was asked may mean.
func (b *Batches) unknownBatch(jid, owner string, o outcome, doubt string) error {
	switch {
	case len(o.silent) == 0:
		return nil
	case o.removed:
		return fmt.Errorf("the master %s ran the batch of the job %s, and %w", owner, jid, runner.ErrRemoved)
	case o.unasked:
		return &runner.NoAnswer{Text: fmt.Sprintf("the master %s runs the batch of the job %s, and was not asked because it is not connected to %s: "+
			"it may be at work on the batch, or goes on with it when it runs again. Ask again when it is back", owner, jid, b.ID)}
	case owner != "":
		return &runner.NoAnswer{Text: fmt.Sprintf("the master %s runs the batch of the job %s and did not answer%s: ask again", owner, jid, doubt)}
	}
	return fmt.Errorf("no master that answered runs the batch of the job %s; %s did not answer, and may go on with it%s: ask again",
		jid, strings.Join(o.silent, ", "), doubt)
}
