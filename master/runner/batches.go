package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"saltern/master/jobs"
	"saltern/master/value"
)

// batchDefs returns the runners about batches (salt/runners/batch.py). Unlike Salt's, they know the batches of
// all masters of the cluster.
func batchDefs() map[string]def {
	return map[string]def{
		"batch.status":      {"jid", batchStatus},
		"batch.list_active": {"", batchListActive},
		"batch.stop":        {"jid kill=", batchStop},
	}
}

// stopWithin bounds how long batch.stop waits for the master that runs the batch, whose disk may hang.
const stopWithin = 30 * time.Second

// Batches are the batches of one master.
type Batches interface {
	// Status returns how far a batch is that this master runs or has run, as batch.status does, or nil for
	// other batches. The error says that this is not known.
	Status(ctx context.Context, jid string) (*value.Map, error)
	// Active returns the batches of this master that have not ended, as Status does, by job id. One whose state
	// cannot be read has the fields jid, master and error alone.
	Active(ctx context.Context) ([]*value.Map, error)
	// Stop keeps further minions from getting the job of a batch. It returns false for a batch that is
	// unknown, has ended or was stopped before.
	Stop(ctx context.Context, jid string) (stopped bool, err error)
}

// ErrRemoved means that the master that ran a batch was removed from the cluster.
var ErrRemoved = errors.New("is no master of this cluster any more: the batch does not go on")

// NoAnswer means that the master that runs a batch does not answer, although it is one of the cluster.
type NoAnswer struct{ Text string }

func (e *NoAnswer) Error() string { return e.Text }

// StopOrders keeps orders to stop batches for masters that do not answer. They obey them before they go on.
type StopOrders interface {
	// Leave leaves an order. When it returns without an error, the order is durable, and the master sends no
	// further part of the batch. isNew is false if the order had been left before.
	Leave(ctx context.Context, jid, master string) (added bool, err error)
	// Left reports whether an order was left and the master has not obeyed it yet.
	Left(ctx context.Context, jid, master string) (bool, error)
}

// BatchesElsewhere asks the other masters of the cluster for their batches. owner is the id of the
// master to ask, or "" for all. The error says which master did not answer: it is a [NoAnswer] of the owner, or an
// [ErrRemoved].
type BatchesElsewhere interface {
	Status(ctx context.Context, jid, owner string) (*value.Map, error)
	// Active returns the batches of the others that have not ended. unknown says, by master, why its batches
	// are not, or not all, in the list.
	Active(ctx context.Context) (list []*value.Map, unknown map[string]error)
	Stop(ctx context.Context, jid, owner string) (stopped bool, err error)
}

// validBatch returns the job id in the argument jid. A batch has the id of its job.
func (c *call) validBatch() (jid string, err error) {
	if err := requirePart("batches of jobs", c.Batches == nil || c.Jobs == nil); err != nil {
		return "", err
	}
	jid = value.Str(c.values["jid"])
	if !jobs.Valid(jid) {
		return "", fmt.Errorf("'%s' is not a job id", jid)
	}
	return jid, nil
}

func batchStatus(c *call) (any, error) {
	jid, err := c.validBatch()
	if err != nil {
		return nil, err
	}

	status, err := c.Batches.Status(c.ctx, jid)
	if err != nil {
		return nil, fmt.Errorf("read the state of the batch: %w", err)
	}
	if status == nil && c.BatchesElsewhere != nil {
		owner := c.ownerOfBatch(jid)
		status, err = c.BatchesElsewhere.Status(c.ctx, jid, owner.id)
		if err != nil && c.isOrderLeft(jid, owner) {
			return nil, fmt.Errorf("an order to stop the batch was left for the master that runs it: no further minion gets the job (%s does not answer)", owner.id)
		}
		if err != nil {
			return nil, err
		}
	}
	if status == nil {
		return nil, nil
	}
	return status, nil
}

// batchListActive lists the batches that have not ended. For a master whose batches are not known the list has an
// entry without a batch: its fields are those of a batch, but None, and the field error says why.
func batchListActive(c *call) (any, error) {
	if err := requirePart("batches of jobs", c.Batches == nil); err != nil {
		return nil, err
	}

	list, err := c.Batches.Active(c.ctx)
	if err != nil {
		return nil, fmt.Errorf("list the batches of this master: %w", err)
	}
	var unknown map[string]error
	if c.BatchesElsewhere != nil {
		var others []*value.Map
		others, unknown = c.BatchesElsewhere.Active(c.ctx)
		list = append(list, others...)
	}
	if err := c.ctx.Err(); err != nil {
		return nil, err
	}

	slices.SortStableFunc(list, func(a, b *value.Map) int { return strings.Compare(a.Str("jid"), b.Str("jid")) })
	for _, master := range slices.Sorted(maps.Keys(unknown)) {
		list = append(list, value.NewMap("master", master, "error", unknown[master].Error()))
	}

	out := []any{}
	for _, entry := range list {
		out = append(out, wholeEntry(entry))
	}
	return out, nil
}

// wholeEntry returns an entry of batch.list_active with all of Salt's fields, so that a program which reads one of
// them finds it.
func wholeEntry(entry *value.Map) *value.Map {
	whole := value.NewMap()
	for _, name := range []string{"jid", "fun", "tgt", "tgt_type", "total", "completed", "active", "pending", "failed",
		"batch_size", "halted", "halted_reason", "driver", "user", "created", "last_progress", "age_seconds"} {
		whole.Set(name, entry.Value(name))
	}
	whole.Update(entry)
	return whole
}

// batchStop stops a batch. With kill, it also tells the minions that have not returned to end the job.
func batchStop(c *call) (any, error) {
	jid, err := c.validBatch()
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(c.ctx, stopWithin)
	defer cancel()

	stopped, err := c.Batches.Stop(ctx, jid)
	if err == nil && !stopped && c.BatchesElsewhere != nil {
		stopped, err = c.stopElsewhere(ctx, jid)
	}
	if err != nil || !stopped || !c.flagArgument("kill", false) {
		return stopped, err
	}

	if err := c.killJob(jid); err != nil {
		return nil, fmt.Errorf("the batch of the job %s is stopped, but minions at work were not told: %w", jid, err)
	}
	return true, nil
}

// stopElsewhere stops a batch on another master, unless this master has run it.
func (c *call) stopElsewhere(ctx context.Context, jid string) (stopped bool, err error) {
	status, err := c.Batches.Status(ctx, jid)
	if status != nil || err != nil {
		return false, err
	}
	owner := c.ownerOfBatch(jid)
	stopped, err = c.BatchesElsewhere.Stop(ctx, jid, owner.id)
	if _, silent := errors.AsType[*NoAnswer](err); !silent || !owner.obeysOrders || c.StopOrders == nil {
		return stopped, err
	}

	added, orderErr := c.StopOrders.Leave(ctx, jid, owner.id)
	if orderErr != nil {
		return false, fmt.Errorf("%w. An order to stop the batch may not be in the shared folder: %w", err, orderErr)
	}
	return added, nil
}

// isOrderLeft reports whether an order to stop a batch waits for its master.
func (c *call) isOrderLeft(jid string, owner batchOwner) bool {
	if !owner.obeysOrders || c.StopOrders == nil {
		return false
	}
	left, err := c.StopOrders.Left(c.ctx, jid, owner.id)
	if err != nil {
		c.Log.Debug("it is not known whether an order to stop a batch was left", "jid", jid, "peer", owner.id, "error", err)
	}
	return left
}

// killJob tells the minions that have a job and have not returned to end it. It does not wait for their answers.
func (c *call) killJob(jid string) error {
	if c.Minions == nil {
		return errors.New("this process cannot run jobs")
	}
	load, err := c.Jobs.Load(c.ctx, jid)
	if err != nil {
		return err
	}
	returns, err := c.Jobs.Returns(c.ctx, jid)
	if err != nil {
		return err
	}

	atWork := slices.DeleteFunc(load.Texts("Minions"), func(id string) bool { return returns.Map(id) != nil })
	if len(atWork) == 0 {
		return nil
	}
	_, err = c.Minions.Tell(c.ctx, Question{
		Target:     value.List(atWork),
		TargetType: "list",
		Fun:        "saltutil.kill_job",
		Arg:        []any{jid},
	})
	return err
}

// batchOwner is the master that runs a batch. Its id is "" if the job does not say so.
type batchOwner struct {
	id          string
	obeysOrders bool // those of [StopOrders]
}

func (c *call) ownerOfBatch(jid string) batchOwner {
	load, err := c.Jobs.Load(c.ctx, jid)
	if err != nil {
		return batchOwner{}
	}
	return ownerIn(load.Map(jobs.BatchField))
}

// ownerIn returns the owner that [jobs.BatchField] names.
func ownerIn(of *value.Map) batchOwner {
	return batchOwner{id: of.Str("master"), obeysOrders: of.Bool("orders")}
}

// batchOf returns what is known of the batch of a job: of says what each master knows ([jobs.BatchField]);
// it may be nil. How far the batch is the master that runs it must tell; if it does not answer, "away" is
// true, and if it was removed from the cluster, "removed". It returns an empty map for a job without a batch.
func (c *call) batchOf(jid string, of *value.Map) *value.Map {
	out := of.Clone()
	if c.Batches == nil {
		return out
	}

	status, err := c.Batches.Status(c.ctx, jid)
	if err != nil {
		c.Log.Warn("the state of a batch cannot be read", "jid", jid, "error", err)
		return out
	}
	if owner := of.Str("master"); status == nil && owner != "" && c.BatchesElsewhere != nil {
		status, err = c.BatchesElsewhere.Status(c.ctx, jid, owner)
		switch {
		case errors.Is(err, ErrRemoved):
			out.Set("removed", true)
		case err != nil:
			out.Set("away", true)
			if c.isOrderLeft(jid, ownerIn(of)) {
				out.Set("halted", "stop")
			}
		}
	}
	if status == nil {
		return out
	}

	for name, key := range map[string]string{"minions": "total", "size": "batch_size", "pending": "pending",
		"active": "active", "failed": "failed"} {
		n, _ := status.Int(key)
		out.Set(name, n)
	}
	out.Set("halted", status.Str("halted_reason"))
	return out
}
