package member

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/internal/probe"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/keyuse"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/status"
)

const (
	// ownAsk is the interval at which this machine asks who answers at the node's address, while
	// this machine does not have that address.
	ownAsk = 5 * time.Second
	// After isolatedAfter without a packet from any other node's machine, this machine announces
	// its address every announceEvery, and every announceLater once the silence has lasted for
	// announceLater.
	isolatedAfter = peerTakes + peerAsk
	announceEvery = 5 * time.Second
	announceLater = time.Minute
	// heardUses is how long another node's report about the uses of keys stays valid.
	heardUses = 20 * time.Second
	// maxUsesTold is the largest number of reports that this node sends to another one, or accepts
	// from one.
	maxUsesTold = 8
)

// machinesFile is a file in settings.NodeDir. For each node it holds the hardware facts by which
// this node recognizes the machine of that node.
const machinesFile = "machines.json"

// keyWatch finds out which machines use the keys of nodes (package keyuse), and whether this
// machine may act for the node whose key it has.
type keyWatch struct {
	env    Env
	id     *nodeapi.Identity // adds a description of this machine to each request
	keeper *nodes.Keeper
	ledger *keyuse.Ledger
	life   string
	facts  keyuse.Facts
	began  time.Time
	saving service.Worker // writes machinesFile
	asking service.Worker // asks who answers at this node's address

	mu        sync.Mutex
	held      bool // this machine has the node's address
	beat      string
	before    string // previous value of the beat
	drawn     time.Time
	looked    time.Time
	asked     time.Time
	announced time.Time
	answered  time.Time           // when another machine last answered at the node's address; zero: never
	told      map[string]toldUses // reports of other nodes, by the hash of the node's certificate
}

// toldUses holds another node's reports about the uses of keys.
type toldUses struct {
	reports []keyuse.Report
	at      time.Time
}

// newKeyWatch reads machinesFile, and collects the facts of this machine.
func newKeyWatch(env Env, id *nodeapi.Identity, life string, keeper *nodes.Keeper) *keyWatch {
	known := map[string]keyuse.Facts{}
	path := filepath.Join(env.Settings.NodeDir(), machinesFile)
	if readJSON(path, &known) != nil { // the file is missing or damaged: learn the facts again
		known = nil
	}

	for _, facts := range known {
		if facts.Check() != nil {
			known = nil
			break
		}
	}

	k := &keyWatch{
		env:    env,
		keeper: keeper,
		ledger: keyuse.NewLedger(known),
		life:   life,
		began:  env.Now(),
		held:   true,
		told:   map[string]toldUses{},
	}

	k.id = id.Speaking(k.speaker)
	machine := probe.LookAtMachine("/", env.Settings.DataDir, env.Settings.Peering.Address)
	k.facts = machine.Facts(id.Hash)
	k.drawBeat(env.Now())
	k.lookAtAddress(env.Now())

	return k
}

// selfEntry returns this node's entry in the table of nodes, and whether there is one.
func (k *keyWatch) selfEntry() (nodes.Node, bool) {
	t := k.keeper.Table()
	return t.ByCertificate(k.id.Hash)
}

// speaker returns this machine's description of itself.
func (k *keyWatch) speaker() keyuse.Speaker {
	k.mu.Lock()
	defer k.mu.Unlock()
	return keyuse.Speaker{
		Life:   k.life,
		Beat:   k.beat,
		Before: k.before,
		Held:   k.held,
		Facts:  k.facts,
	}
}

// reconcile checks the address, records how this machine uses its own key, and starts the actions
// that are due. Member.Run calls it about once a second.
func (k *keyWatch) reconcile(ctx context.Context) {
	now := k.env.Now()
	k.lookAtAddress(now)
	k.drawBeat(now)
	self, there := k.selfEntry()
	if there {
		k.ledger.Note(self.Certificate, k.speaker(), self.Address, now)
	}

	t := k.keeper.Table()
	var present []string
	for _, n := range t.Present() {
		present = append(present, n.Certificate)
	}

	k.ledger.Keep(present)
	k.saving.Start(k.saveFacts)

	k.mu.Lock()
	due := there && !k.held && now.Sub(k.asked) >= ownAsk
	if due {
		k.asked = now
	}
	k.mu.Unlock()

	if due {
		k.asking.Start(func() { k.askOwn(ctx, self) })
	}
}

// drawBeat draws the next beat when keyuse.BeatEvery has passed. The beat also depends on the time,
// because two copies of one memory may draw the same random numbers.
func (k *keyWatch) drawBeat(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	passed := now.Sub(k.drawn)
	if !k.drawn.IsZero() && passed >= 0 && passed < keyuse.BeatEvery {
		return
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", rand.Text(), time.Now().UnixNano()))
	k.before = k.beat
	k.beat = hex.EncodeToString(sum[:8])
	k.drawn = now
}

// lookAtAddress records whether this machine has the node's address. If the kernel cannot tell, the
// last result stays.
func (k *keyWatch) lookAtAddress(now time.Time) {
	k.mu.Lock()
	due := k.looked.IsZero() || now.Sub(k.looked) >= 2*time.Second
	k.mu.Unlock()

	self, there := k.selfEntry()
	if !due || !there {
		return
	}

	held, err := probe.HasAddress(self.Address)
	k.mu.Lock()
	defer k.mu.Unlock()

	k.looked = now
	if err != nil || held == k.held {
		return
	}

	k.held = held
	k.env.Log.Warn("this machine's addresses have changed", "node", self.Name, "address", self.Address, "held", held)
}

// announce sends a packet when this node receives nothing from other nodes. The packet teaches the
// other machines which machine has this node's address. Otherwise a second machine with that
// address might receive this machine's packets, and no node would notice. announce stops once this
// node knows about a second machine. heard is the time at which another node's machine last sent
// anything; zero: never.
func (k *keyWatch) announce(now, heard time.Time) {
	if heard.IsZero() {
		heard = k.began
	}

	self, there := k.selfEntry()
	silence := now.Sub(heard)
	every := announceEvery
	if silence > announceLater {
		every = announceLater
	}

	k.mu.Lock()
	due := there && k.held && silence >= isolatedAfter && now.Sub(k.announced) >= every
	if due {
		k.announced = now
	}
	k.mu.Unlock()

	if !due || len(k.reportsOf(k.id.Hash)) > 0 {
		return
	}

	if err := probe.Announce(self.Address); err != nil {
		k.env.Log.Debug("this node's address cannot be announced", "address", self.Address, "error", err)
	}
}

// saveFacts writes machinesFile if the facts have changed.
func (k *keyWatch) saveFacts() {
	known, changed := k.ledger.Known()
	if !changed {
		return
	}
	if err := writeJSON(filepath.Join(k.env.Settings.NodeDir(), machinesFile), known); err != nil {
		k.env.Log.Warn("by which facts nodes are known cannot be written down", "error", err)
	}
}

// askOwn sends a request to this node's own address. If the machine that answers has the same key,
// then this machine was copied from it, or it from this one.
func (k *keyWatch) askOwn(ctx context.Context, self nodes.Node) {
	ctx, cancel := context.WithTimeout(ctx, peerTakes)
	defer cancel()
	client := nodeapi.NewClient(k.id, address(k.env.Settings, self), self.Certificate)
	defer client.Close()
	s, err := client.Status(ctx)
	if err != nil || s.Life == k.life {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answered = k.env.Now()
}

// recordUse records that a machine at source made a request with the key of the node n. It returns
// why that machine may not act for n, or "" if it may.
func (k *keyWatch) recordUse(n nodes.Node, s keyuse.Speaker, source string) string {
	if s.Life == "" { // an older version does not say whether its machine has the address
		s.Held = source == n.Address
	}
	now := k.env.Now()
	k.ledger.Note(n.Certificate, s, source, now)
	report, strange := k.ledger.Report(n.Certificate, now)
	if !strange {
		return ""
	}
	if m, ok := report.Of(s.Life, s.Held); ok && m.May {
		return ""
	}
	return report.Text(n.Name, n.Address)
}

// reports returns this node's reports to the others about machines that use the keys of nodes.
func (k *keyWatch) reports() (out []keyuse.Report) {
	t := k.keeper.Table()
	for _, n := range t.Present() {
		if r, strange := k.ledger.Report(n.Certificate, k.env.Now()); strange && len(out) < maxUsesTold {
			out = append(out, r)
		}
	}
	return out
}

// takeReports replaces the stored reports of another node about the uses of keys. It ignores a node
// that does not serve, because such a node could otherwise stop others from acting.
func (k *keyWatch) takeReports(from nodes.Node, reports []keyuse.Report) {
	if !from.Serves() || len(reports) > maxUsesTold {
		reports = nil
	}

	for _, r := range reports {
		if err := r.Check(); err != nil {
			k.env.Log.Debug("what a node says about the uses of keys is not taken", "peer", from.Name, "error", err)
			reports = nil
			break
		}
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.told, from.Certificate)
	if len(reports) > 0 {
		k.told[from.Certificate] = toldUses{reports, k.env.Now()}
	}
}

// reportsOf returns the reports about one key: this node's own, if it has one, and those of other
// nodes.
func (k *keyWatch) reportsOf(certificate string) (out []keyuse.Report) {
	now := k.env.Now()
	if own, strange := k.ledger.Report(certificate, now); strange {
		out = append(out, own)
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	for _, told := range k.told {
		if now.Sub(told.at) > heardUses {
			continue
		}

		for _, r := range told.reports {
			if r.Certificate == certificate {
				out = append(out, r)
			}
		}
	}

	return out
}

// standing is the decision whether this machine may act for the node whose key it has.
type standing struct {
	refusal string // why this machine may not act for the node; "": it may
	copied  bool   // as far as is known, this machine is a copy of the node's machine
	// lost reports that this machine counts as a copy only because the address is missing: no node
	// knows of another machine with the key, or of other hardware. [status.AddressMissing] then says
	// what is missing.
	lost bool
}

// standing decides whether this machine may act. A report that this machine may act outweighs
// undecided reports. A report that another machine may act outweighs all others.
func (k *keyWatch) standing() standing {
	self, there := k.selfEntry()
	if !there {
		return standing{}
	}

	k.mu.Lock()
	held := k.held
	answers := !k.answered.IsZero() && k.env.Now().Sub(k.answered) <= heardUses
	k.mu.Unlock()

	if !held {
		why := fmt.Sprintf("the table of nodes has %s at %s, and this machine does not have that address",
			self.Name, self.Address)
		if answers {
			why += ", at which another machine answers with the same key"
		}

		return standing{
			refusal: why,
			copied:  true,
			lost:    !answers && !slices.ContainsFunc(k.reportsOf(self.Certificate), k.ofCopy),
		}
	}

	var undecided standing
	may := false
	for _, r := range k.reportsOf(k.id.Hash) {
		mine, ok := r.Of(k.life, true)
		switch {
		case !ok:
		case mine.May:
			may = true
		case r.Decided():
			return standing{refusal: r.Text(self.Name, self.Address) + ": that is this one", copied: true}
		default:
			undecided.refusal = r.Text(self.Name, self.Address)
		}
	}

	if may {
		return standing{}
	}

	return undecided
}

// ofCopy reports whether a report about this node's key suggests that this machine is a copy: two
// machines use the key, or the node had other hardware.
func (k *keyWatch) ofCopy(r keyuse.Report) bool {
	mine, _ := r.Of(k.life, false)
	return r.Two || mine.Likeness == keyuse.Other
}

// mayAct returns an error when this machine may not act for its node.
func (k *keyWatch) mayAct() error {
	s := k.standing()
	if s.refusal == "" {
		return nil
	}
	return fmt.Errorf("%w: %s; if this machine is a copy, applianced reset --yes erases its keys and data, makes it a new one and changes nothing in the cluster; if it is the node itself, applianced status says what to do",
		api.ErrState, s.refusal)
}

// findings returns a finding for each node whose key another machine uses.
func (k *keyWatch) findings() (list []status.Finding) {
	t := k.keeper.Table()
	for _, n := range t.Present() {
		if n.Certificate == k.id.Hash {
			s := k.standing()
			if s.copied && !s.lost {
				list = append(list, status.Finding{Code: status.NotTheNode, Subject: n.Name, Cause: s.refusal})
			}
			if s.copied {
				continue
			}
		}

		reports := k.reportsOf(n.Certificate)
		if len(reports) == 0 {
			continue
		}

		worst := reports[0]
		for _, r := range reports {
			if r.Two && !worst.Two {
				worst = r
			}
		}

		list = append(list, status.Finding{Code: status.KeyTwice, Subject: n.Name, Cause: worst.Text(n.Name, n.Address)})
	}

	return list
}

// close waits for the workers, for a bounded time.
func (k *keyWatch) close() {
	k.saving.Wait(2 * time.Second)
	k.asking.Wait(peerTakes)
}
