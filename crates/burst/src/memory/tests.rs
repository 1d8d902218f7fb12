//! Where frames are, and what packets hold.

use super::*;

#[test]
fn frames_come_home_from_anywhere() {
    let memory = Memory::new(8, 2048).unwrap();
    let (mut a, mut b) = (memory.pool(4).unwrap(), memory.pool(4).unwrap());
    assert!(memory.pool(1).is_err(), "all frames are carved");
    let packets: Vec<_> = (0..4).map(|i| a.packet(&[i; 60]).unwrap()).collect();
    assert!(a.take().is_none());
    assert!(packets.iter().enumerate().all(|(i, p)| p.data() == [i as u8; 60]));
    for (i, packet) in packets.into_iter().enumerate() {
        match i {
            0 => a.free(packet),
            1 => b.free(packet),
            2 => drop(packet),
            _ => std::thread::spawn(move || drop(packet)).join().unwrap(),
        }
    }
    assert_eq!(a.stats(), PoolStats { frames: 4, free: 4, unnamed: 2 });
    let all: Vec<_> = (0..5).map_while(|_| a.take()).collect();
    assert_eq!(all.len(), 4);
}

#[test]
fn packets_are_taken_into_a_burst_as_far_as_there_is_room() {
    let memory = Memory::new(300, 2048).unwrap();
    let (mut pool, mut other) = (memory.pool(290).unwrap(), memory.pool(10).unwrap());
    let mut burst = Burst::new();
    assert_eq!(pool.take_into(3, &mut burst).len(), 3);
    for (i, packet) in pool.take_into(2, &mut burst).iter_mut().enumerate() {
        packet.set_len(1);
        packet.data_mut()[0] = i as u8;
    }
    let lens: Vec<usize> = burst.iter().map(Packet::len).collect();
    assert_eq!((lens, burst[3].data(), burst[4].data()), (vec![0, 0, 0, 1, 1], &[0][..], &[1][..]));
    assert_eq!(pool.take_into(1000, &mut burst).len(), 251, "no more than fit");
    let mut second = Burst::new();
    assert_eq!(pool.take_into(100, &mut second).len(), 34, "no more than there are");
    assert_eq!(pool.take_into(1, &mut second).len(), 0);
    // Those that were freed elsewhere come back.
    other.free_all(&mut second);
    assert_eq!(pool.take_into(100, &mut second).len(), 34);
    pool.free_all(&mut burst);
    pool.free_all(&mut second);
    assert_eq!(pool.stats(), PoolStats { frames: 290, free: 290, unnamed: 0 });
}

#[test]
fn a_packet_outlives_its_pool() {
    let packet = Memory::new(2, 2048).unwrap().pool(2).unwrap().packet(b"still here").unwrap();
    assert_eq!(packet.data(), b"still here");
}

#[test]
fn headers_are_pushed_and_popped_within_the_frame() {
    let mut pool = Memory::new(1, 2048).unwrap().pool(1).unwrap();
    assert!(pool.packet(&[0; 1793]).is_none(), "too long for a frame");
    let mut packet = pool.packet(&[7; 100]).unwrap();
    packet.set_timestamp_ns(42);
    assert!(packet.cut_front(14) && packet.grow_front(14) && packet.grow_front(192));
    assert!(!packet.grow_front(1), "the cold bytes are not headroom");
    assert_eq!((packet.timestamp_ns(), packet.len()), (42, 292));
    assert!(!packet.cut_front(293));
    packet.set_len(packet.len() + packet.tailroom());
    assert_eq!(packet.tailroom(), 0);
}

#[test]
fn what_a_frame_held_before_does_not_show() {
    let mut pool = Memory::new(1, 2048).unwrap().pool(1).unwrap();
    let mut packet = pool.packet(&[7; 100]).unwrap();
    packet.set_timestamp_ns(42);
    packet.set_wire_len(1500);
    packet.set_trace(3);
    packet.set_own();
    let merged = Merged { size: 1448, fixed_ident: true };
    packet.set_merged(merged);
    assert_eq!((packet.timestamp_ns(), packet.wire_len(), packet.trace()), (42, 1500, Some(3)));
    assert_eq!((packet.is_own(), packet.merged()), (true, Some(merged)));
    packet.clear_merged();
    assert_eq!(packet.merged(), None);
    packet.set_merged(merged);
    packet.set_steer(9);
    assert_eq!((packet.steer(), packet.trace(), packet.merged()), (Some(9), Some(3), Some(merged)));
    // A note is the node's that has made it, and leaves the hash to others.
    packet.hash = 7;
    assert_eq!(packet.note(), None);
    packet.set_note(5);
    packet.hash = 8;
    assert_eq!((packet.note(), packet.steer(), packet.hash), (Some(5), Some(9), 8));
    packet.clear_steer();
    assert_eq!((packet.steer(), packet.trace()), (None, Some(3)));
    packet.set_steer(9);
    pool.free(packet);
    let packet = pool.take().unwrap();
    assert_eq!((packet.is_own(), packet.merged(), packet.steer()), (false, None, None));
    assert_eq!(packet.note(), None);
    assert_eq!((packet.len(), packet.timestamp_ns(), packet.wire_len(), packet.trace()), (0, 0, 0, None));
    pool.free(packet);
}

#[test]
fn the_largest_frame_can_be_cut_to_its_end() {
    assert!(Memory::new(1, 65536).is_err(), "offsets would not fit in 16 bits");
    let mut pool = Memory::new(1, 32768).unwrap().pool(1).unwrap();
    let mut packet = pool.take().unwrap();
    packet.set_len(packet.tailroom());
    assert!(packet.cut_front(packet.len()));
    assert_eq!((packet.len(), packet.headroom(), packet.tailroom()), (0, 32768 - COLD, 0));
    pool.free(packet);
}
