package jobs

import "sync"

// knownMax bounds each generation of the known facts, in jobs.
const knownMax = 4096

// known caches something about recently used jobs, so that it is not read from the disk again. It has two
// generations of at most most jobs: when the young generation is full, it becomes the old one, and the former
// old one is dropped.
type known[V any] struct {
	most       int
	mu         sync.Mutex
	young, old map[string]V
}

type jobFacts struct {
	load    bool // the job has a load
	nocache bool
	// pending is the load of the job while that is not durable. It may be nil: the job has a durable load, or none.
	pending *record
}

func newKnown[V any](most int) *known[V] { return &known[V]{most: most, young: map[string]V{}} }

func (k *known[V]) get(jid string) (V, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f, ok := k.young[jid]
	if !ok {
		if f, ok = k.old[jid]; ok {
			k.putLocked(jid, f)
		}
	}
	return f, ok
}

func (k *known[V]) put(jid string, f V) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.putLocked(jid, f)
}

func (k *known[V]) putLocked(jid string, f V) {
	if len(k.young) >= k.most {
		k.young, k.old = map[string]V{}, k.young
	}
	k.young[jid] = f
}

// forget drops all cached facts, for example after jobs were removed.
func (k *known[V]) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.young, k.old = map[string]V{}, nil
}

// drop drops what is cached about a job.
func (k *known[V]) drop(jid string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.young, jid)
	delete(k.old, jid)
}
