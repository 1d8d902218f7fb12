use super::*;
use std::net::Ipv4Addr;

#[test]
fn bmp_connections_are_kept_alive() {
    let id = Ipv4Addr::new(10, 0, 0, 200);
    let speaker = SpeakerConfig { asn: 65_000, id, hold_s: 90, peers: Vec::new(), exports: Vec::new() };
    let address = IpAddr::from([127, 0, 0, 1]);
    let bmp = vec![BmpConfig { name: "edge".into(), address, view: View::PrePolicy, max_prefixes: 10 }];
    let bmp_listen = vec![SocketAddr::new(address, 0)];
    let mut runner = Runner::open(RunnerConfig { listen: Vec::new(), speaker, bmp_listen, bmp }).unwrap();
    let _exporter = TcpStream::connect(runner.bmp_listening()[0]).unwrap();
    for _ in 0..1000 {
        runner.poll(0, &mut Vec::new());
        if runner.exporters[0].stream.is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let stream = runner.exporters[0].stream.as_ref().unwrap();
    assert!(sockopt::socket_keepalive(stream).unwrap());
    let silence = (sockopt::tcp_keepidle(stream).unwrap(), sockopt::tcp_keepintvl(stream).unwrap());
    assert_eq!(silence, (Duration::from_secs(30), Duration::from_secs(10)));
    assert_eq!(sockopt::tcp_keepcnt(stream), Ok(3));
}
