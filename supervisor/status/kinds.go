package status

import (
	"cmp"
	"slices"
)

// Kinds returns the kinds of problems, ordered by code.
func Kinds() []Kind {
	all := slices.Concat(
		nodeKinds(),
		clusterKinds(),
		balancerKinds(),
		masterKinds(),
		apiKinds(),
		gitKinds(),
		storageKinds(),
		guardKinds(),
		upkeepKinds(),
	)

	for i := range all {
		if slices.Contains(needNetwork(), all[i].Code) {
			all[i].DependsOn = append(slices.Clip(all[i].DependsOn), AddressMissing, PortRefused, NetworkDown)
		}
	}

	slices.SortFunc(all, func(a, b Kind) int { return cmp.Compare(a.Code, b.Code) })
	return all
}

// needNetwork returns the codes of problems that can be consequences of a missing network: the node
// does not have its address, or may not listen on it.
func needNetwork() []Code {
	return []Code{
		NodeMasterDown, NodeUnreachable, NodeNotServing, NodeAPIDown, VirtualNobody, MastersApart,
		ArbiterUnwell, RemovalHalf, MasterDown, MasterSilent, MasterUnreported, MasterProblem,
		APIDown, APIFront, BalancerDown, BalancerSilent, NoBackend, VirtualUnable, VolumeAbsent,
		VolumeHangs, VolumeNoQuorum, StorageDaemon, BrickDown, HealStuck, StorageBlocked,
		StoragePeerAway, MirrorBehind, ClockSkew,
	}
}
