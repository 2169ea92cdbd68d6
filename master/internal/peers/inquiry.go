package peers

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"sync"
	"time"

	"saltern/master/event"
	"saltern/master/value"
)

const (
	// inquiryDepth bounds the number of questions of other masters, and of answers of theirs, that wait.
	// Overflow policy: a further one is lost, and the master that asked reports that nobody has answered.
	inquiryDepth = 4096
	// inquiryTime is how long a master waits for the others' answers.
	inquiryTime = 5 * time.Second
)

// Others are the other masters of the cluster, as one master asks them. All fields are required.
type Others struct {
	ID   string // of this master
	Bus  *event.Bus
	Fire func(tag string, data *value.Map)
	// Peers returns the ids of the other masters, and whether each is connected.
	Peers func() map[string]bool
	Log   *slog.Logger
}

// inquiry asks the other masters for something that one of them has. A question is an event to all
// masters; each answers by an event whether it has that (the field found). It is safe for concurrent
// use.
type inquiry struct {
	Others
	questions, answers string      // tags of both events
	order              event.Order // what the events order
	// answer answers a question. The inquiry adds the field ask.
	answer func(ctx context.Context, question *value.Map) *value.Map

	mu      sync.Mutex
	waiting map[string]chan *value.Map // by the field ask of an answer: who waits for it
}

// Run answers the questions of other masters, and passes on their answers, until ctx ends.
func (q *inquiry) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()

	// A disk that hangs holds up the questions, but not the answers.
	running.Go(func() { q.follow(ctx, q.questions, q.reply) })
	running.Go(func() { q.follow(ctx, q.answers, q.pass) })
}

// follow calls handle with the data of the events of other masters with this tag, until ctx ends.
func (q *inquiry) follow(ctx context.Context, tag string, handle func(ctx context.Context, data *value.Map)) {
	sub := q.Bus.Subscribe(tag, inquiryDepth, func(other string) bool { return other == tag })
	defer sub.Close()

	eachEvent(ctx, sub, func(e event.Event) {
		if e.Lost > 0 {
			q.Log.Error("what another master has asked for is lost: too many at once", "tag", tag, "lost", e.Lost)
		}
		if event.MayOrder(e, q.order) {
			handle(ctx, e.Data)
		}
	})
}

// pass passes an answer to the call that waits for it.
func (q *inquiry) pass(_ context.Context, answer *value.Map) {
	q.mu.Lock()
	defer q.mu.Unlock()

	select {
	case q.waiting[answer.Str("ask")] <- answer:
	default: // nobody waits, or a master answers again and again
	}
}

// reply answers the question of another master, unless it is for a third one.
func (q *inquiry) reply(ctx context.Context, question *value.Map) {
	if to := question.Str("to"); to != "" && to != q.ID {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, inquiryTime)
	defer cancel()

	reply := q.answer(ctx, question)
	reply.Set("id", q.ID)
	reply.Set("ask", question.Str("ask"))
	q.Fire(q.answers, reply)
}

// outcome is what the other masters have answered.
type outcome struct {
	found   *value.Map // the answer of the master that has it; nil: nobody says so
	without []string   // masters that do not have it, if nobody has
	silent  []string   // masters that have not answered, if nobody has
}

// ask asks the other masters, or only owner unless it is "". It returns when one of them has what is
// asked for, when all have answered that are connected, or after inquiryTime.
func (q *inquiry) ask(ctx context.Context, question *value.Map, owner string) outcome {
	ctx, cancel := context.WithTimeout(ctx, inquiryTime)
	defer cancel()

	peers := q.Peers()
	if owner != "" {
		peers = map[string]bool{owner: peers[owner]}
		question.Set("to", owner)
	}

	ask := rand.Text()
	question.Set("ask", ask)
	answers := make(chan *value.Map, len(peers))
	q.mu.Lock()
	q.waiting[ask] = answers
	q.mu.Unlock()

	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.waiting, ask)
	}()

	var o outcome
	for peer, connected := range peers {
		if !connected {
			o.silent = append(o.silent, peer)
		}
	}

	q.Fire(q.questions, question)
	for len(o.without)+len(o.silent) < len(peers) {
		var answer *value.Map
		select {
		case answer = <-answers:
		case <-ctx.Done():
			o.silent = othersThan(o.without, peers)
			return o.sorted()
		}

		peer := answer.Str("id")
		if answer.Bool("found") {
			return outcome{found: answer}
		}

		if _, known := peers[peer]; known && !slices.Contains(o.without, peer) {
			o.without = append(o.without, peer)
			o.silent = slices.DeleteFunc(o.silent, func(id string) bool { return id == peer })
		}
	}

	return o.sorted()
}

func (o outcome) sorted() outcome {
	slices.Sort(o.without)
	slices.Sort(o.silent)
	return o
}

// othersThan returns the peers that are not in the list.
func othersThan(list []string, peers map[string]bool) (others []string) {
	for peer := range peers {
		if !slices.Contains(list, peer) {
			others = append(others, peer)
		}
	}
	return others
}
