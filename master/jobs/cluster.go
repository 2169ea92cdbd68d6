package jobs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"saltern/internal/durable"
	"saltern/master/value"
)

// Times of the cluster's job cache.
const (
	// longest wait for a peer to store a return, and after that for the shared folder to do so
	keepWait = 5 * time.Second
)

// ownSegment marks a segment that this master wrote and therefore never reads: its journal has all records of it. For
// such a segment it takes the place of the number of bytes read.
const ownSegment = -1

// Errors of Peers.Keep.
var (
	// ErrNoPeer means that other masters belong to the cluster but none of them is connected.
	ErrNoPeer = errors.New("no other master that keeps returns is connected")
	// ErrOnlyMaster means that no other master belongs to the cluster.
	ErrOnlyMaster = errors.New("the cluster has one master")
)

// Peers sends returns to the other masters of the cluster.
type Peers interface {
	// Keep sends a return to all peers and waits until one of them has stored it on its disk.
	// Without a peer, Keep returns ErrNoPeer or ErrOnlyMaster.
	Keep(ctx context.Context, r Return) error
	// Copy sends the result of a function that ran on this master to the peers, without waiting for
	// them.
	Copy(r Return)
}

// ClusterConfig configures a Cluster. All fields are required.
type ClusterConfig struct {
	ID    string // id of this master
	Dir   string // shared folder, which must exist
	Local *Local
	Peers Peers
	Keep  time.Duration // keep_jobs: age at which jobs are removed
	// Degraded is called with an error when returns are stored on fewer disks than intended, and
	// with nil when they are stored safely again.
	Degraded func(error)
	Log      *slog.Logger
}

// Cluster is the Cache of a master in a cluster. Every master has all jobs on its own disk: the
// jobs and returns that it received from clients and minions, copies that peers send at once, and
// records that it reads from the shared folder. Each master writes the records that it received to
// the shared folder; that is called handing over.
//
// The master acknowledges a return when the return would survive the loss of this master: when the
// return is on the disks of this master and of a peer. If no peer stores the return, the master
// waits until the return is in the shared folder. If the folder does not answer either and no peer
// is connected, the disk of this master must suffice, and the Cluster calls Degraded with an error.
// If a connected peer does not answer, the master does not acknowledge the return, and the minion
// sends it again.
//
// If the master that received a record does not hand it over, the masters with a copy of the record
// do so, even after they were restarted. So a master that was away finds the records that it missed
// in the folder. Records that are not in the folder yet wait in the queues of its peers.
type Cluster struct {
	*Local
	cfg      ClusterConfig
	volume   *volume
	held     *held
	caughtUp func() // called when Import has read all that is in the folder

	stop context.CancelFunc
	wg   sync.WaitGroup

	mu         sync.Mutex
	imported   map[string]int64 // bytes of each segment that were read, or ownSegment
	records    map[string]int   // number of records of each segment that were imported since the start
	rereadFrom map[string]int64 // segments to read again: the bytes of each that an earlier run read
	filling    map[string]bool  // jobs of an earlier run whose records holdLeftover has not put into held yet
	count      uint64           // records imported since the start
}

var _ Cache = (*Cluster)(nil)

// OpenCluster opens the cluster's job cache on top of cfg.Local. Close closes cfg.Local as well.
// Before OpenCluster returns, it waits up to five seconds for the import of the records in the
// folder.
func OpenCluster(cfg ClusterConfig) (*Cluster, error) {
	c := &Cluster{
		Local:      cfg.Local,
		cfg:        cfg,
		held:       newHeld(),
		imported:   map[string]int64{},
		records:    map[string]int{},
		rereadFrom: map[string]int64{},
		caughtUp:   func() {},
	}

	c.volume = newVolume(cfg.Dir, cfg.ID, cfg.Local.cfg.Now, func(name string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.imported[name] = ownSegment
	}, cfg.Log)

	b, err := durable.Read(c.importedFile(), maxFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read which segments were imported: %w", err)
	}

	for line := range strings.Lines(string(b)) {
		size, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseInt(size, 10, 64); err == nil && handedName.MatchString(name) {
			c.imported[name] = n
		}
	}

	c.forgetImported()
	unhanded := c.unhandedNow
	c.unhanded.Store(&unhanded)
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	if archive, ok := cfg.Local.cfg.Archive.(Refiller); ok {
		archive.AddMissing(1)
		c.caughtUp = sync.OnceFunc(func() { archive.AddMissing(-1) })
	}
	first := make(chan struct{})

	// The shared file system may hang, so Close waits for these goroutines only for a bounded time.
	c.wg.Go(func() { c.volume.handOverLoop(ctx) })
	c.wg.Go(func() { c.follow(ctx, sync.OnceFunc(func() { close(first) })) })
	select {
	case <-first:
	// OpenCluster waits for the first import, since other masters may have handed over records
	// while this master was down. If the import takes longer, it continues in the background.
	case <-time.After(5 * time.Second):
		cfg.Log.Warn("jobs of the other masters are still being read", "path", cfg.Dir)
	}

	return c, nil
}

func (c *Cluster) importedFile() string { return filepath.Join(c.journal.dir, "imported") }

// SaveReturn implements Cache. It reports whether it has stored the return; false means that the
// return was already stored. When the error is nil, the return is stored as safely as the comment
// of [Cluster] describes.
func (c *Cluster) SaveReturn(ctx context.Context, ret Return) (bool, error) {
	if ret.Time.IsZero() { // all masters get the same, as precise as a stamp
		ret.Time = c.Local.cfg.Now().Truncate(time.Microsecond)
	}
	r, facts, err := c.newReturn(ret)
	if err != nil || facts.nocache {
		return false, err
	}
	r.own = true
	if ret.Load == nil || ret.ID == c.cfg.ID {
		return c.saveRun(ctx, r, facts, ret)
	}

	// Nobody may get a return that this master does not keep, or masters would keep different ones.
	stored, written, err := c.submitReturn(ctx, r, facts, ret)
	if err != nil {
		return false, c.keepElsewhere(ctx, ret, err)
	}

	handed := stored
	if stored == nil {
		kept, isOther := c.keptInstead(r, written)
		if isOther {
			return false, refuseOther(ctx, written)
		}
		handed = []*record{r}
		if kept != nil {
			handed = []*record{kept} // the shared folder and the peers may not have it yet
			ret = asKept(ret, kept)
		}
	}

	wait, cancel := context.WithTimeout(ctx, keepWait)
	perr := c.cfg.Peers.Keep(wait, ret)
	cancel()
	if written != nil {
		if err := written.wait(ctx); err != nil {
			return stored != nil, err
		}
	}
	if perr == nil || errors.Is(perr, ErrOnlyMaster) {
		c.cfg.Degraded(nil)
		c.queueRecords(handed)
		return stored != nil, nil
	}

	return stored != nil, c.handOver(ctx, handed, perr)
}

// keepElsewhere gives a return that this master cannot store, for the reason err, to the peers, unless this master has a
// return of the minion for the job. It returns err: the return is not acknowledged.
func (c *Cluster) keepElsewhere(ctx context.Context, ret Return, err error) error {
	if c.overlay.holdsReturn(ret.JID, ret.ID) || c.readReturn(ret.JID, ret.ID) != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, keepWait)
	defer cancel()
	_ = c.cfg.Peers.Keep(wait, ret)
	return err
}

// refuseOther returns ErrOtherReturn for a return with another content than the kept one, once that is durable. written
// is the kept return if it may not be durable yet, otherwise nil. The return that is kept goes its own way to the others.
func refuseOther(ctx context.Context, written *record) error {
	if written != nil {
		if err := written.wait(ctx); err != nil {
			return err
		}
	}
	return ErrOtherReturn
}

// handOver waits until the shared folder has the records of a return that no peer has stored, for the reason perr.
func (c *Cluster) handOver(ctx context.Context, recs []*record, perr error) error {
	wait, cancel := context.WithTimeout(ctx, keepWait)
	defer cancel()
	switch verr := c.volume.addAndWait(wait, copies(recs)...); {
	case verr == nil:
		c.cfg.Degraded(fmt.Errorf("returns are kept by this master and the shared folder: %w", perr))
		return nil
	case errors.Is(perr, ErrNoPeer):
		c.cfg.Degraded(fmt.Errorf("returns are kept by this master alone: %w, and the shared folder does not take them: %w",
			perr, verr))
		return nil
	default:
		return errors.Join(perr, verr)
	}
}

// saveRun stores the result of a function that ran on this master, a runner or a wheel function. The
// caller has the result anyway, so saveRun does not wait for peers.
func (c *Cluster) saveRun(ctx context.Context, r *record, facts jobFacts, ret Return) (bool, error) {
	stored, _, err := c.commitReturn(ctx, r, facts, ret)
	if err != nil || stored == nil {
		return false, err
	}

	c.queueRecords(stored)
	if ret.Load != nil {
		c.cfg.Peers.Copy(ret)
	}
	return true, nil
}

// queueRecords queues copies of records for the shared folder.
func (c *Cluster) queueRecords(recs []*record) { c.volume.queueRecords(copies(recs)...) }

func copies(recs []*record) []*record {
	out := make([]*record, len(recs))
	for i, r := range recs {
		out[i] = r.copy()
	}
	return out
}

// SaveCopy stores a copy of a return that a peer received. When it returns nil, the copy is
// durable, or another return of the minion for the job, which this master keeps.
func (c *Cluster) SaveCopy(ctx context.Context, peer string, ret Return) error {
	r, facts, err := c.newReturn(ret)
	if err != nil || facts.nocache {
		return err
	}
	stored, kept, err := c.commitReturn(ctx, r, facts, ret)
	if err != nil && !errors.Is(err, ErrOtherReturn) {
		return err
	}

	switch {
	case stored != nil:
	case kept != nil:
		stored = []*record{kept}
	default: // what this master keeps cannot be read
		stored = []*record{r}
	}
	for _, copied := range copies(stored) {
		c.holdRecord(peer, copied)
	}
	return nil
}

// Stage implements Cache.
func (c *Cluster) Stage(
	ctx context.Context,
	jid string,
	load *value.Map,
	minions []string,
) (func(context.Context), error) {
	recs, durable, err := c.stageRecords(ctx, jid, load, minions, true)
	if err != nil {
		return nil, err
	}
	// The journal has the job already: a caller whose time ends now would be told of an error, and
	// the job would be listed nevertheless.
	if err := durable.wait(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}

	c.queueRecords(recs)
	return func(ctx context.Context) { c.waitVisible(ctx, recs) }, nil
}

// SaveLoad implements Cache.
func (c *Cluster) SaveLoad(ctx context.Context, jid string, load *value.Map, minions []string) error {
	awaitShown, err := c.Stage(ctx, jid, load, minions)
	if err != nil {
		return err
	}
	awaitShown(ctx)
	return nil
}

// AddMinions implements Cache. The other masters read the minions in the shared folder.
func (c *Cluster) AddMinions(ctx context.Context, jid string, minions []string, syndic string) error {
	r, err := c.addMinions(ctx, jid, minions, syndic)
	if err != nil {
		return err
	}
	c.queueRecords([]*record{r})
	return nil
}

// StageCopy shows a job that a peer has started to readers of this cache. It does not wait until
// the copy is durable: the peer has the job.
func (c *Cluster) StageCopy(ctx context.Context, peer, jid string, load *value.Map, minions []string) error {
	recs, _, err := c.stageRecords(ctx, jid, load, minions, false)
	for _, r := range recs {
		copied := r.copy()
		copied.origin = r
		c.holdRecord(peer, copied)
	}
	return err
}

func (c *Cluster) holdRecord(peer string, r *record) {
	if due := c.held.put(c.Local.cfg.Now(), peer, r); len(due) > 0 {
		c.volume.queueRecords(due...)
	}
}

// PeerLost hands over the copies of records that a lost peer received. If the peer never comes
// back, the master that replaces it finds these records in the folder.
func (c *Cluster) PeerLost(peer string) {
	if due := c.held.popPeer(peer); len(due) > 0 {
		c.volume.queueRecords(due...)
	}
}

// follow imports the records that other masters hand over, until ctx ends. It calls imported once,
// after the first import.
func (c *Cluster) follow(ctx context.Context, imported func()) {
	defer imported()
	c.holdLeftover()
	t := time.NewTicker(30 * time.Second)
	defer t.Stop()

	for {
		if err := c.Import(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Log.Warn("jobs of the other masters cannot be read", "path", c.cfg.Dir, "error", err)
		}

		imported()
		if due := c.held.popDue(c.Local.cfg.Now()); len(due) > 0 {
			c.volume.queueRecords(due...)
		}

		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// Clean implements Cache. It also removes old segments from the shared folder.
func (c *Cluster) Clean(ctx context.Context, keep time.Duration) (int, error) {
	n, err := c.Local.Clean(ctx, keep)
	c.volume.removeExpired(keep)
	return n, err
}

// Close hands over the waiting records and closes the local cache. It stops waiting when ctx ends.
func (c *Cluster) Close(ctx context.Context) error {
	c.stop()
	done := make(chan struct{})
	go func() { // the wait may hang in the shared file system
		c.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		c.cfg.Log.Warn("the shared folder does not answer; what it misses is with the other masters", "path", c.cfg.Dir)
	}
	return c.Local.Close(ctx)
}

// ClusterStats holds counters of records since the start, and present sizes.
type ClusterStats struct {
	Handed   uint64 // records handed to the shared folder
	Imported uint64 // records read from the shared folder
	Lost     uint64 // records dropped before they were handed over, because the queue was full
	Held     int    // copies of peers' records that are not yet in the folder
}

// ClusterStats returns the counters.
func (c *Cluster) ClusterStats() ClusterStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ClusterStats{
		Handed:   c.volume.handed.Load(),
		Imported: c.count,
		Lost:     c.volume.lost.Load(),
		Held:     c.held.count(),
	}
}
