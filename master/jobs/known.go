package jobs

import "sync"

// knownMax bounds each generation of known, in jobs.
const knownMax = 4096

// known caches facts about recently used jobs, so that storing a return does not access the file
// system again for them. It has two generations: when the young generation is full, it becomes the
// old one, and the former old one is dropped.
type known struct {
	mu         sync.Mutex
	young, old map[string]jobFacts
}

type jobFacts struct {
	load    bool // the job has a load
	nocache bool
}

func newKnown() *known { return &known{young: map[string]jobFacts{}} }

func (k *known) get(jid string) (jobFacts, bool) {
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

func (k *known) put(jid string, f jobFacts) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.putLocked(jid, f)
}

func (k *known) putLocked(jid string, f jobFacts) {
	if len(k.young) >= knownMax {
		k.young, k.old = map[string]jobFacts{}, k.young
	}
	k.young[jid] = f
}

// forget drops all cached facts, for example after jobs were removed.
func (k *known) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.young, k.old = map[string]jobFacts{}, nil
}
