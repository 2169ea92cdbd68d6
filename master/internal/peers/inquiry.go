package peers

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"sync"
	"time"

	"saltern/master/cluster"
	"saltern/master/event"
	"saltern/master/value"
)

const (
	// inquiryDepth bounds the number of questions of other masters, and of answers of theirs, that wait.
	// Overflow policy: a further one is lost, and the master that asked reports that nobody has answered.
	inquiryDepth = 4096
	// inquiryTime is how long a master waits for the others' answers. A question waits no longer for a
	// peer.
	inquiryTime = cluster.QuestionFor
	// replyTime is how long the answer to a question may take after its arrival, so that it still reaches
	// the master that asked. A question that waits longer for a worker is not answered.
	replyTime = inquiryTime - time.Second
)

// Numbers of goroutines that answer questions of other masters at once. Each may wait for the disk.
const (
	orderWorkers = 16
	showWorkers  = 4
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
	// answer answers a question, or returns nil: then nobody answers. The inquiry adds the field ask.
	answer func(ctx context.Context, question *value.Map) *value.Map
	// lane returns the lane in which a question waits for a worker.
	lane  func(question *value.Map) *lane
	lanes []*lane

	mu      sync.Mutex
	waiting map[string]chan *value.Map // by the field ask of an answer: who waits for it
}

// lane is a queue of questions. A slow answer holds up only its worker.
type lane struct {
	workers   int
	questions chan arrivedQuestion
}

func newLane(workers int) *lane {
	return &lane{workers: workers, questions: make(chan arrivedQuestion, inquiryDepth)}
}

type arrivedQuestion struct {
	question *value.Map
	until    time.Time // when nobody waits for the answer any more
}

// Run answers the questions of other masters, and passes on their answers, until ctx ends.
func (q *inquiry) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()

	running.Go(func() { q.follow(ctx, q.questions, q.enqueue) })
	running.Go(func() { q.follow(ctx, q.answers, q.pass) })
	for _, l := range q.lanes {
		for range l.workers {
			running.Go(func() { q.work(ctx, l) })
		}
	}
}

// work answers the questions of a lane until ctx ends.
func (q *inquiry) work(ctx context.Context, l *lane) {
	for {
		select {
		case a := <-l.questions:
			q.reply(ctx, a)
		case <-ctx.Done():
			return
		}
	}
}

// follow calls handle with the data of the events of other masters with this tag, until ctx ends.
func (q *inquiry) follow(ctx context.Context, tag string, handle func(data *value.Map)) {
	sub := q.Bus.Subscribe(tag, inquiryDepth, func(other string) bool { return other == tag })
	defer sub.Close()

	eachEvent(ctx, sub, func(e event.Event) {
		if e.Lost > 0 {
			q.Log.Error("what another master has asked for is lost: too many at once", "tag", tag, "lost", e.Lost)
		}
		if event.MayOrder(e, q.order) {
			handle(e.Data)
		}
	})
}

// pass passes an answer to the call that waits for it.
func (q *inquiry) pass(answer *value.Map) {
	q.mu.Lock()
	defer q.mu.Unlock()

	select {
	case q.waiting[answer.Str("ask")] <- answer:
	default: // nobody waits, or a master answers again and again
	}
}

// enqueue gives the question of another master to a worker, unless it is for a third one.
func (q *inquiry) enqueue(question *value.Map) {
	if to := question.Str("to"); to != "" && to != q.ID {
		return
	}

	select {
	case q.lane(question).questions <- arrivedQuestion{question, time.Now().Add(replyTime)}:
	default:
		q.Log.Error("what another master has asked for is lost: too many questions wait", "tag", q.questions)
	}
}

// reply answers the question of another master. It does nothing if the answer would come too late: whoever
// asked was told that nobody has answered.
func (q *inquiry) reply(ctx context.Context, a arrivedQuestion) {
	ctx, cancel := context.WithDeadline(ctx, a.until)
	defer cancel()
	if ctx.Err() != nil {
		q.Log.Warn("what another master has asked for is not done: it has waited for too long", "tag", q.questions)
		return
	}

	reply := q.answer(ctx, a.question)
	if reply == nil {
		return
	}
	reply.Set("id", q.ID)
	reply.Set("ask", a.question.Str("ask"))
	q.Fire(q.answers, reply)
}

// outcome holds the answers of the other masters.
type outcome struct {
	found   *value.Map // the answer of the master that has it; nil: nobody says so
	without []string   // masters that do not have it, if nobody has
	silent  []string   // masters that have not answered, if nobody has
	unasked bool       // the owner was not asked, because it is not connected
	removed bool       // the owner was not asked, because it is no master of the cluster any more
}

// ask asks the other masters, or only owner unless it is "". It returns when one of them has what is
// asked for, when all have answered that are connected, or after inquiryTime. It does not ask an owner
// that is not connected: the question would reach it later, when nobody waits.
func (q *inquiry) ask(ctx context.Context, question *value.Map, owner string) outcome {
	ctx, cancel := context.WithTimeout(ctx, inquiryTime)
	defer cancel()

	peers := q.Peers()
	if owner != "" {
		if connected, isPeer := peers[owner]; !connected {
			return outcome{silent: []string{owner}, unasked: isPeer, removed: !isPeer}
		}
		peers = map[string]bool{owner: true}
		question.Set("to", owner)
	}

	var o outcome
	for peer, connected := range peers {
		if !connected {
			o.silent = append(o.silent, peer)
		}
	}

	answers, forget := q.send(question, len(peers), len(o.silent) < len(peers))
	defer forget()
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

// send fires a question to n masters if some of them are connected. The caller must call forget when it waits
// for no more answers.
func (q *inquiry) send(question *value.Map, n int, connected bool) (answers <-chan *value.Map, forget func()) {
	ask := rand.Text()
	question.Set("ask", ask)
	arriving := make(chan *value.Map, n)
	q.mu.Lock()
	q.waiting[ask] = arriving
	q.mu.Unlock()

	if connected {
		q.Fire(q.questions, question)
	}
	return arriving, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.waiting, ask)
	}
}

// askEach asks all other masters for something that each of them may have. It returns the answers by the id
// of the master, and the masters that have not answered within inquiryTime, sorted.
func (q *inquiry) askEach(ctx context.Context, question *value.Map) (answers map[string]*value.Map, silent []string) {
	ctx, cancel := context.WithTimeout(ctx, inquiryTime)
	defer cancel()

	peers := q.Peers()
	connected := 0
	for _, up := range peers {
		if up {
			connected++
		}
	}

	arriving, forget := q.send(question, len(peers), connected > 0)
	defer forget()
	answers = map[string]*value.Map{}
	for len(answers) < connected && ctx.Err() == nil {
		select {
		case answer := <-arriving:
			if _, known := peers[answer.Str("id")]; known {
				answers[answer.Str("id")] = answer
			}
		case <-ctx.Done():
		}
	}

	for peer := range peers {
		if answers[peer] == nil {
			silent = append(silent, peer)
		}
	}
	slices.Sort(silent)
	return answers, silent
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
