package ova

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"text/template"
)

// Property is one question that VMware asks when the archive is deployed. The
// guest finds the answers in guestinfo.ovfEnv, see supervisor/userdata.
type Property struct {
	Key, Label, Description string
	Secret                  bool
}

// Properties are the answers of the set-up that make sense before the first
// boot. Their keys are those of an answers file after "saltern.".
var Properties = []Property{
	{"saltern.mode", "Form or join", "form: the first node of a new cluster. join: a node of a cluster that exists. Empty: the console asks.", false},
	{"saltern.cluster_id", "Cluster", "Name of the cluster.", false},
	{"saltern.node", "Node", "Name of this machine; empty: its host name.", false},
	{"saltern.join", "Join string", "For joining: what a node of the cluster shows as its join string. Stands for peers and secret.", true},
	{"saltern.peers", "Peers", "For joining: addresses of nodes, with commas.", false},
	{"saltern.secret", "Secret", "For joining with peers: the cluster's secret.", true},
	{"saltern.virtual_address", "Virtual address", "An address that moves between the nodes; empty: none.", false},
	{"saltern.network.method", "Network", "dhcp or static; empty: DHCP.", false},
	{"saltern.network.address", "Address", "For static: this machine's address with prefix length, as 192.0.2.11/24.", false},
	{"saltern.network.gateway", "Gateway", "For static: the router.", false},
	{"saltern.network.dns", "Name servers", "Addresses, with commas.", false},
	{"saltern.network.ntp", "Time servers", "Names or addresses, with commas, beside those of DHCP and Debian's pool.", false},
	{"saltern.admin.ssh_keys", "SSH keys", "Public keys of the account admin, with commas.", false},
	{"saltern.data_disk", "Data disk", "Block device for the shared volume, as /dev/sdb; empty: the system's disk.", false},
	{"saltern.answers", "All answers", "A whole answers file, plain or in base64; stands for all others.", true},
}

// machine is what the template needs.
type machine struct {
	Name, Version      string
	Disk               string // file name
	DiskSize, Capacity int64
	CPUs, MemoryMiB    int
	Properties         []Property
}

func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a buffer does not fail
	return strings.ReplaceAll(b.String(), "&#34;", "&quot;")
}

// envelope is an OVF 1.1 descriptor (DMTF DSP0243) with VMware's transport
// for properties. The children of an Item are in alphabetical order, as the
// CIM schema wants them.
var envelope = template.Must(template.New("ovf").Funcs(template.FuncMap{"x": escape}).Parse(`<?xml version="1.0" encoding="UTF-8"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1" xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData" xmlns:vssd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData" xmlns:vmw="http://www.vmware.com/schema/ovf">
  <References>
    <File ovf:href="{{x .Disk}}" ovf:id="file1" ovf:size="{{.DiskSize}}"/>
  </References>
  <DiskSection>
    <Info>Virtual disks</Info>
    <Disk ovf:capacity="{{.Capacity}}" ovf:capacityAllocationUnits="byte" ovf:diskId="disk1" ovf:fileRef="file1" ovf:format="http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized"/>
  </DiskSection>
  <NetworkSection>
    <Info>Networks</Info>
    <Network ovf:name="Network">
      <Description>Minions, administrators and the other nodes</Description>
    </Network>
  </NetworkSection>
  <VirtualSystem ovf:id="{{x .Name}}">
    <Info>A node of a highly available Salt master</Info>
    <Name>{{x .Name}}</Name>
    <OperatingSystemSection ovf:id="96" vmw:osType="debian11_64Guest">
      <Info>Guest</Info>
      <Description>Debian GNU/Linux 12 (64-bit)</Description>
    </OperatingSystemSection>
    <VirtualHardwareSection ovf:transport="com.vmware.guestInfo">
      <Info>Hardware</Info>
      <System>
        <vssd:ElementName>Virtual Hardware Family</vssd:ElementName>
        <vssd:InstanceID>0</vssd:InstanceID>
        <vssd:VirtualSystemIdentifier>{{x .Name}}</vssd:VirtualSystemIdentifier>
        <vssd:VirtualSystemType>vmx-14</vssd:VirtualSystemType>
      </System>
      <Item>
        <rasd:AllocationUnits>hertz * 10^6</rasd:AllocationUnits>
        <rasd:Description>Processors</rasd:Description>
        <rasd:ElementName>{{.CPUs}} CPU</rasd:ElementName>
        <rasd:InstanceID>1</rasd:InstanceID>
        <rasd:ResourceType>3</rasd:ResourceType>
        <rasd:VirtualQuantity>{{.CPUs}}</rasd:VirtualQuantity>
      </Item>
      <Item>
        <rasd:AllocationUnits>byte * 2^20</rasd:AllocationUnits>
        <rasd:Description>Memory</rasd:Description>
        <rasd:ElementName>{{.MemoryMiB}} MB</rasd:ElementName>
        <rasd:InstanceID>2</rasd:InstanceID>
        <rasd:ResourceType>4</rasd:ResourceType>
        <rasd:VirtualQuantity>{{.MemoryMiB}}</rasd:VirtualQuantity>
      </Item>
      <Item>
        <rasd:Address>0</rasd:Address>
        <rasd:Description>SCSI controller</rasd:Description>
        <rasd:ElementName>SCSI 0</rasd:ElementName>
        <rasd:InstanceID>3</rasd:InstanceID>
        <rasd:ResourceSubType>VirtualSCSI</rasd:ResourceSubType>
        <rasd:ResourceType>6</rasd:ResourceType>
      </Item>
      <Item>
        <rasd:AddressOnParent>0</rasd:AddressOnParent>
        <rasd:ElementName>Disk 1</rasd:ElementName>
        <rasd:HostResource>ovf:/disk/disk1</rasd:HostResource>
        <rasd:InstanceID>4</rasd:InstanceID>
        <rasd:Parent>3</rasd:Parent>
        <rasd:ResourceType>17</rasd:ResourceType>
      </Item>
      <Item>
        <rasd:AddressOnParent>7</rasd:AddressOnParent>
        <rasd:AutomaticAllocation>true</rasd:AutomaticAllocation>
        <rasd:Connection>Network</rasd:Connection>
        <rasd:ElementName>Network adapter 1</rasd:ElementName>
        <rasd:InstanceID>5</rasd:InstanceID>
        <rasd:ResourceSubType>VmxNet3</rasd:ResourceSubType>
        <rasd:ResourceType>10</rasd:ResourceType>
      </Item>
      <vmw:Config ovf:required="false" vmw:key="firmware" vmw:value="efi"/>
    </VirtualHardwareSection>
    <ProductSection ovf:class="saltern">
      <Info>Set-up of the node</Info>
      <Product>Saltern</Product>
      <Version>{{x .Version}}</Version>
{{- range .Properties}}
      <Property ovf:key="{{.Key}}"{{if .Secret}} ovf:password="true"{{end}} ovf:type="string" ovf:userConfigurable="true" ovf:value="">
        <Label>{{x .Label}}</Label>
        <Description>{{x .Description}}</Description>
      </Property>
{{- end}}
    </ProductSection>
  </VirtualSystem>
</Envelope>
`))

func (m machine) descriptor() ([]byte, error) {
	var b bytes.Buffer
	if err := envelope.Execute(&b, m); err != nil {
		return nil, fmt.Errorf("ova: %w", err)
	}
	return b.Bytes(), nil
}
