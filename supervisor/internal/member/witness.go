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
	// markEvery is the interval at which a node raises its marks. If the machine is put back to an
	// older state, the others cannot detect the loss of data written after the last raise.
	markEvery = 10 * time.Second
	// witnessAsk is the interval between two requests to a node while this node has not decided
	// about its copy. After the decision the interval is markEvery.
	witnessAsk = time.Second
)

// witness counts up this node's marks and remembers the marks of the other nodes. From the marks it
// finds out whether this node's disk was put back to an older state. The old copy of the shared
// volume must then not join the other copies (package marks).
type witness struct {
	env    Env
	self   string // hash of this node's certificate
	keeper *nodes.Keeper
	peers  *peers
	start  string
	disk   *markDisk
	began  time.Time

	raising service.Worker
	giving  service.Worker // sets the copy aside and requests a new one

	mu            sync.Mutex
	memory        marks.Memory
	reports       map[string]*nodeAnswer // answers of other nodes, by the hash of the node's certificate
	grown         bool                   // memory holds more than marksFile
	written       time.Time              // when memory was last written
	majoritySince time.Time              // since when a majority of the nodes has answered; zero: no majority has
	verdict       marks.Verdict
	undecided     time.Time // since when the copy is undecided; zero: it is decided
	twin          bool
	serving       bool
	putBack       putBack
	aside         []string // old copies that were set aside, as last seen: looking may hang
}

// nodeAnswer holds the last answer of another node, which was asked at its own address.
type nodeAnswer struct {
	report marks.Report
	at     time.Time // when report came; zero: never
	asked  time.Time
	asking bool
}

// newWitness reads the marks on this node's disk, and counts them up once for this start.
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
		reports:   map[string]*nodeAnswer{},
		disk:      &markDisk{settings: env.Settings, start: start},
	}

	memory, record, err := w.disk.readMarks(self)
	if err != nil {
		return nil, err
	}

	w.memory, w.putBack = memory, record
	w.serving = env.Settings.OnVolume() && storage.Serves(env.Settings.Storage.Bricks, env.Settings.Storage.Volume)
	return w, w.disk.raiseMarks(env.Now())
}

// reconcile raises the marks, asks the other nodes, decides, and starts the next step of a repair.
// Member.Run calls it about once a second. It adds the goroutines that ask to the WaitGroup all.
func (w *witness) reconcile(ctx context.Context, all *sync.WaitGroup, volume *storage.Manager) {
	now := w.env.Now()
	w.raising.Start(func() { w.keepDisk(now) })
	w.askMarks(ctx, all, now)
	w.decide(now)
	w.giving.Start(func() { w.giveUp(ctx, volume) })
}

// keepDisk counts up the marks and saves what this node remembers of the others, each when it is
// due.
func (w *witness) keepDisk(now time.Time) {
	if err := w.disk.raiseWhenDue(now); err != nil {
		w.env.Log.Warn("how far this node's disk has come cannot be written down", "error", err)
	}

	w.mu.Lock()
	own := w.disk.allMarks()
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

// askMarks asks the other nodes for their marks and for the marks of other nodes that they
// remember.
func (w *witness) askMarks(ctx context.Context, all *sync.WaitGroup, now time.Time) {
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
			h = &nodeAnswer{}
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
		all.Go(func() { w.askNode(ctx, n.Certificate, client, h) })
	}

	w.memory.Keep(present)
	for certificate, h := range w.reports {
		if _, there := t.ByCertificate(certificate); !there && !h.asking {
			delete(w.reports, certificate)
		}
	}
}

// askNode asks one node. A node with an older version remembers no marks; its empty answer counts
// as an answer.
func (w *witness) askNode(ctx context.Context, certificate string, client *nodeapi.Client, h *nodeAnswer) {
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

// report returns this node's report to the node whose certificate has the hash asker.
func (w *witness) report(asker string) marks.Report {
	own, table := w.disk.allMarks(), w.keeper.Table().Version
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

// situation returns the known facts for the decision. The caller holds mu.
func (w *witness) situation(now time.Time) marks.Situation {
	t := w.keeper.Table()
	own := marks.Report{
		Start:   w.start,
		Marks:   w.disk.allMarks(),
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
		w.recordOldDisk(now, stageAside)
	case w.verdict == marks.Only:
		w.recordOldDisk(now, stageOnly)
	case !s.Twin && w.putBack.Stage == "" && w.disk.markOf(marks.Data).Behind(w.memory.Of(w.self, marks.Data)):
		w.recordOldDisk(now, stageData)
	}
}

// recordOldDisk records that a disk is old, and at which stage its repair begins. The caller holds
// mu.
func (w *witness) recordOldDisk(now time.Time, stage string) {
	self, _ := w.selfEntry()
	w.putBack = putBack{
		Stage:      stage,
		From:       w.disk.lastCounted(stage),
		Noticed:    now,
		Brick:      self.Brick,
		Generation: w.disk.markOf(marks.Bricks).Renew(w.memory.Of(w.self, marks.Bricks)).Generation,
	}
	if stage == stageAside {
		w.serving = false
	}
	w.env.Log.Error("this node's disk is older than the cluster remembers: it was put back", "from",
		w.putBack.From, "what", stage)
}

// twinDoubt returns why another machine may have this node's disk, or "" if nothing suggests that.
// After a disk was put back, the doubt lasts for two minutes, so that a second machine has time to
// answer.
func (w *witness) twinDoubt() string {
	now := w.env.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.reports {
		if now.Sub(h.at) <= heardUses && h.report.Twin(w.start) {
			return "another machine answered as this node just now"
		}
	}
	// The machine from which this disk was restored may still run and answer.
	if w.putBack.Stage != "" && now.Sub(w.putBack.Noticed) < 2*time.Minute {
		return "this node's disk is older than the cluster remembers"
	}
	return ""
}

// mayServe reports whether glusterd may start. If not, it also returns the reason for waiting.
func (w *witness) mayServe() (bool, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	setsAside := w.putBack.Stage == stageAside && w.disk.markOf(marks.Bricks).Generation < w.putBack.Generation
	switch {
	case setsAside:
		return false, "the old copy of this node to be set aside"
	case w.verdict == marks.Serve, w.serving:
		return true, ""
	}
	return false, "the other nodes to say whether the copy of this node is older than it should be" + w.silentNodes()
}

// silentNodes returns a phrase with the names of the nodes that have not answered, or "". The
// caller holds mu.
func (w *witness) silentNodes() string {
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

// close waits for the workers, for a bounded time.
func (w *witness) close() {
	w.raising.Wait(2 * time.Second)
	w.giving.Wait(2 * time.Second)
}
