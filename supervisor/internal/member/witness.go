package member

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"saltern/glusterctl"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/marks"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/storage"
)

const (
	// markEvery is between two counts of a node: what was done since the last one is not
	// missed when the machine is put back.
	markEvery = 10 * time.Second
	// witnessAsk is between two questions to a node while something is to be decided;
	// afterwards it is markEvery.
	witnessAsk = time.Second
)

// witness counts how far this node's disk has come, remembers how far those of the others
// have, and finds out whether this one was put back to an older state: then its copy of the
// shared volume must not meet the others (package marks).
type witness struct {
	env    Env
	self   string // the hash of this node's certificate
	keeper *nodes.Keeper
	peers  *peers
	start  string
	disk   *markDisk
	began  time.Time

	raising service.Worker
	giving  service.Worker // sets the copy aside and asks for a new one

	mu            sync.Mutex
	memory        marks.Memory
	reports       map[string]*heard // by certificate
	grown         bool              // memory has more than the disk
	written       time.Time         // when memory was
	majoritySince time.Time         // zero: no majority has answered yet
	verdict       marks.Verdict
	undecided     time.Time // since when; zero: it is decided
	twin          bool
	serving       bool
	putBack       putBack
	aside         []string // old copies that are kept, as seen last; the disk may hang
}

// heard holds the answer of another node that was asked at its own address.
type heard struct {
	report marks.Report
	at     time.Time // zero: never
	asked  time.Time
	asking bool
}

// newWitness reads what this node's disk says, and counts this start.
func newWitness(env Env, self, start string, keeper *nodes.Keeper, p *peers) (*witness, error) {
	w := &witness{
		env:       env,
		self:      self,
		keeper:    keeper,
		peers:     p,
		start:     start,
		began:     env.Now(),
		verdict:   marks.Ask,
		undecided: env.Now(),
		reports:   map[string]*heard{},
		disk:      &markDisk{settings: env.Settings, start: start},
	}

	memory, record, err := w.disk.open(self)
	if err != nil {
		return nil, err
	}

	w.memory, w.putBack = memory, record
	w.serving = env.Settings.OnVolume() && storage.Serves(env.Settings.Storage.Bricks, env.Settings.Storage.Volume)
	return w, w.disk.raise(env.Now())
}

// reconcile is called again and again, by one goroutine; all waits for the questions.
func (w *witness) reconcile(ctx context.Context, all *sync.WaitGroup, volume *storage.Manager) {
	now := w.env.Now()
	w.raising.Start(func() { w.keepDisk(now) })
	w.ask(ctx, all, now)
	w.decide(now)
	w.giving.Start(func() { w.giveUp(ctx, volume) })
}

// keepDisk counts, and writes what is remembered, when it is time for that.
func (w *witness) keepDisk(now time.Time) {
	if err := w.disk.raiseWhenDue(now); err != nil {
		w.env.Log.Warn("how far this node's disk has come cannot be written down", "error", err)
	}

	w.mu.Lock()
	own := w.disk.marks()
	for place, history := range own {
		w.grown = w.memory.Note(w.self, place, history) || w.grown
	}

	due := w.grown && now.Sub(w.written) >= 5*time.Second
	memory := w.memory.Clone()
	if due {
		w.grown, w.written = false, now
	}
	w.mu.Unlock()

	if !due {
		return
	}

	if err := w.disk.remember(memory); err != nil {
		w.env.Log.Warn("how far the disks of other nodes have come cannot be written down", "error", err)
		w.mu.Lock()
		w.grown = true
		w.mu.Unlock()
	}
}

// ask asks the other nodes what they remember, and how far they have come.
func (w *witness) ask(ctx context.Context, all *sync.WaitGroup, now time.Time) {
	t := w.keeper.Table()
	clients := w.peers.clients()
	present := []string{w.self}

	w.mu.Lock()
	defer w.mu.Unlock()
	every := markEvery
	if w.verdict != marks.Serve {
		every = witnessAsk
	}

	for _, n := range t.Peers(w.env.Settings.Node) {
		present = append(present, n.Certificate)
		h := w.reports[n.Certificate]
		if h == nil {
			h = &heard{}
			w.reports[n.Certificate] = h
		}

		client := clients[n.Name]
		waits := every
		if h.at.IsZero() {
			waits = witnessAsk
		}

		if client == nil || h.asking || now.Sub(h.asked) < waits {
			continue
		}

		h.asking, h.asked = true, now
		all.Go(func() { w.hear(ctx, n.Certificate, client, h) })
	}

	w.memory.Keep(present)
	for certificate, h := range w.reports {
		if _, there := t.ByCertificate(certificate); !there && !h.asking {
			delete(w.reports, certificate)
		}
	}
}

// hear asks one node. One of a version before remembers nothing, and has answered.
func (w *witness) hear(ctx context.Context, certificate string, client *nodeapi.Client, h *heard) {
	ctx, cancel := context.WithTimeout(ctx, peerTakes)
	defer cancel()
	report, err := client.Marks(ctx)

	w.mu.Lock()
	defer w.mu.Unlock()
	h.asking = false
	if err != nil {
		return
	}

	h.report, h.at = report, w.env.Now()
	for place, history := range report.Marks {
		w.grown = w.memory.Note(certificate, place, history) || w.grown
	}

	w.grown = w.memory.Merge(report.Memory) || w.grown
}

// report returns what this node tells the node with that certificate.
func (w *witness) report(asker string) marks.Report {
	own, table := w.disk.marks(), w.keeper.Table().Version
	copies := w.disk.hasCopy()

	w.mu.Lock()
	defer w.mu.Unlock()
	r := marks.Report{
		Start:   w.start,
		Marks:   own,
		Memory:  w.memory.Clone(),
		Table:   table,
		Copy:    copies,
		Serving: copies && w.serving,
	}

	if h := w.reports[asker]; h != nil && !h.at.IsZero() {
		r.Heard = &marks.Heard{Start: h.report.Start, Ago: w.env.Now().Sub(h.at)}
	}

	return r
}

// situation is called with mu held.
func (w *witness) situation(now time.Time) marks.Situation {
	t := w.keeper.Table()
	own := marks.Report{
		Start:   w.start,
		Marks:   w.disk.marks(),
		Table:   t.Version,
		Copy:    w.disk.hasCopy(),
		Serving: w.serving,
	}

	var peers []marks.Peer
	for _, n := range t.Peers(w.env.Settings.Node) {
		p := marks.Peer{Certificate: n.Certificate, Copy: n.Brick != "" && n.Storage != string(glusterctl.Client)}
		if h := w.reports[n.Certificate]; h != nil && !h.at.IsZero() {
			p.Report = &h.report
		}
		peers = append(peers, p)
	}

	s := marks.Look(w.self, own, w.memory, peers)
	s.Waited = now.Sub(w.began)
	if !s.Majority() {
		w.majoritySince = time.Time{}
	} else if w.majoritySince.IsZero() {
		w.majoritySince = now
	}

	if !w.majoritySince.IsZero() {
		s.WaitedForRest = now.Sub(w.majoritySince)
	}

	return s
}

// decide decides whether this node's copy of the volume may serve, and records the repair that an
// old disk needs.
func (w *witness) decide(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.situation(now)
	before := w.verdict
	w.verdict = marks.Decide(s)
	w.twin = s.Behind && s.Twin

	if w.verdict != before {
		w.env.Log.Info("what becomes of this node's copy of the volume", "verdict", w.verdict, "before", before)
	}

	undecided := w.verdict == marks.Ask || w.verdict == marks.Hold
	if !undecided {
		w.undecided = time.Time{}
	} else if w.undecided.IsZero() {
		w.undecided = now
	}

	w.serving = w.serving || w.verdict == marks.Serve && s.Copy

	switch {
	case w.verdict == marks.Aside && w.putBack.Stage != stageAside:
		w.found(now, stageAside)
	case w.verdict == marks.Only:
		w.found(now, stageOnly)
	case !s.Twin && w.putBack.Stage == "" && w.disk.mark(marks.Data).Behind(w.memory.Of(w.self, marks.Data)):
		w.found(now, stageData)
	}
}

// found begins with what follows from an old disk. Called with mu held.
func (w *witness) found(now time.Time, stage string) {
	self, _ := w.line()
	w.putBack = putBack{
		Stage:      stage,
		From:       w.disk.from(stage),
		Noticed:    now,
		Brick:      self.Brick,
		Generation: w.disk.mark(marks.Bricks).Renew(w.memory.Of(w.self, marks.Bricks)).Generation,
	}
	if stage == stageAside {
		w.serving = false
	}
	w.env.Log.Error("this node's disk is older than the cluster remembers: it was put back", "from",
		w.putBack.From, "what", stage)
}

// doubt says what speaks for another machine that has this node's disk; "": nothing does. A
// machine that was put back is one for a while, until the other one has been heard, if it runs.
func (w *witness) doubt() string {
	now := w.env.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.reports {
		if now.Sub(h.at) <= heardUses && h.report.Twin(w.start) {
			return "another machine answered as this node just now"
		}
	}
	// Until then another machine may have the same disk.
	if w.putBack.Stage != "" && now.Sub(w.putBack.Noticed) < 2*time.Minute {
		return "this node's disk is older than the cluster remembers"
	}
	return ""
}

// mayServe reports whether glusterd may start, and why not.
func (w *witness) mayServe() (bool, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	setsAside := w.putBack.Stage == stageAside && w.disk.mark(marks.Bricks).Generation < w.putBack.Generation
	switch {
	case setsAside:
		return false, "the old copy of this node to be set aside"
	case w.verdict == marks.Serve, w.serving:
		return true, ""
	}
	return false, "the other nodes to say whether the copy of this node is older than it should be" + w.silent()
}

// silent names the nodes that have not answered; mu is held.
func (w *witness) silent() string {
	var names []string
	t := w.keeper.Table()
	for _, n := range t.Peers(w.env.Settings.Node) {
		if h := w.reports[n.Certificate]; h == nil || h.at.IsZero() {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s did not answer yet)", strings.Join(names, ", "))
}

// close waits for what is under way.
func (w *witness) close() {
	w.raising.Wait(2 * time.Second)
	w.giving.Wait(2 * time.Second)
}
