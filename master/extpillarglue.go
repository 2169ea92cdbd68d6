package master

import (
	"saltern/master/internal/pillar/extpillar"
	"saltern/master/value"
)

// openExtPillar creates what runs entries of ext_pillar without Python. It starts no program. It
// returns nil if an option changes what Salt's modules do, or which ones there are.
func (m *Master) openExtPillar() *extpillar.Runner {
	c := m.cfg
	for _, name := range []string{"module_dirs", "pillar_dirs", "disable_pillars", "exclude_ext_pillar"} {
		if value.Truth(c.Raw.Value(name)) {
			return nil
		}
	}
	if safe, set := c.Raw.Get("cmd_safe"); set && safe == false {
		return nil // cmd_json uses a shell
	}
	if c.Nodegroups.Len() > 0 && !c.MinionDataCache {
		return nil // Salt finds no member of a group
	}
	return extpillar.New(extpillar.Config{Modules: c.ExtensionModules, Log: m.log})
}
