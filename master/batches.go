package master

import (
	"context"
	"fmt"
	"path/filepath"

	"saltern/master/batch"
	"saltern/master/event"
	"saltern/master/jobs"
	"saltern/master/msgpack"
)

// batches drives what `salt --batch --async` leaves to the master.
type batches struct {
	*batch.Manager
	sub *event.Subscription
}

func (m *Master) newBatches() *batches {
	b := &batches{Manager: batch.NewManager(batch.Config{
		Dir: m.cfg.CacheDir,
		JobDir: func(jid string) (string, error) {
			return jobs.Folder(filepath.Join(m.cfg.CacheDir, "jobs"), m.cfg.HashType, jid)
		},
		Publish: m.publishSlice, Returns: m.jobs.Returns, Fire: m.fire, Now: m.now, Log: m.log,
	})}
	b.sub = m.bus.Subscribe("batches", 10000, b.Wants)
	return b
}

func (b *batches) run(ctx context.Context) {
	defer b.sub.Close()
	b.Run(ctx, b.sub.C)
}

// publishSlice publishes the job of a batch to its next minions, and to nobody
// else: the user may have been limited to them.
func (m *Master) publishSlice(ctx context.Context, load *msgpack.Map) error {
	j, err := m.newJob(ctx, load)
	if err != nil {
		return err
	}
	if len(j.minions) == 0 {
		return fmt.Errorf("none of them has an accepted key")
	}
	if !m.cfg.OrderMasters { // lower masters find theirs by the target
		if err := j.restrict(); err != nil {
			return err
		}
	}
	return m.start(ctx, j)
}
