import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/**
 * One NameNode and some DataNodes on free ports of this machine: MiniDfs FOLDER BLOCK_BYTES DATANODES.
 *
 * <p>Prints "READY", the URL and the port of the DataNode's web pages; ends when its standard input does, so that it
 * never outlives the tests.
 */
public class MiniDfs {
  public static void main(String[] arguments) throws Exception {
    Configuration settings = new Configuration();
    settings.set("dfs.permissions.enabled", "false");
    settings.set("dfs.namenode.fs-limits.min-block-size", "1024");
    settings.set("dfs.blocksize", arguments[1]);
    // A file may be closed while its last block is still on its way to be reported, which the NameNode allows for blocks
    // with several copies: else most closings wait 0.4 s.
    settings.set("dfs.namenode.file.close.num-committed-allowed", "1");
    MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(settings, new File(arguments[0])).numDataNodes(Integer.parseInt(arguments[2])).build();
    cluster.waitActive();
    System.out.println("READY " + cluster.getURI() + " " + cluster.getDataNodes().get(0).getInfoPort());
    while (System.in.read() >= 0) {}
    Runtime.getRuntime().halt(0);
  }
}
