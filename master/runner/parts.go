package runner

import (
	"saltern/master/cache"
	"saltern/master/keys"
	"saltern/master/value"
)

// OnCache returns the master's cache as a Cache. The Cache calls clearPillar before it removes the
// pillar of a minion.
func OnCache(c *cache.Store, clearPillar func(id string)) Cache { return onCache{c, clearPillar} }

type onCache struct {
	c           *cache.Store
	clearPillar func(id string)
}

func (b onCache) Get(bank, id string) (*value.Map, bool) { return b.c.Get(cache.Bank(bank), id) }
func (b onCache) Set(bank, id string, m *value.Map) error {
	_, err := b.c.Set(cache.Bank(bank), id, m)
	return err
}
func (b onCache) Flush(bank, id string) error {
	if bank == string(cache.Pillar) {
		b.clearPillar(id)
	}
	return b.c.Flush(cache.Bank(bank), id)
}
func (b onCache) IDs(bank string) ([]string, error) { return b.c.IDs(cache.Bank(bank)) }

// OnKeys returns the master's keys as Keys.
func OnKeys(s *keys.Store) Keys { return onKeys{s} }

type onKeys struct{ *keys.Store }

func (k onKeys) Delete(id string) error { return k.Store.Delete(id, keys.Accepted) }
